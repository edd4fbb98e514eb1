"""Which standbys get an assignment now, and which members are too many.

Decided whenever the answer may have changed: a member joined, a group became stable, a registration ended, a config was
altered. What follows is at most one rebalance, which admits all members for which there are slots; and when the join
phase completes, which of them the new generation leaves out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Final

from holdfast.coordinator.classic import rebalance, session
from holdfast.coordinator.classic.group import Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, Role
from holdfast.coordinator.classic.responses import join_response
from holdfast.coordinator.classic.state_machine import EMPTY, PREPARING, STABLE
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions import registered_wait, standby_members, targeted_rejoin
from holdfast.coordinator.extensions.record import extensions_record
from holdfast.coordinator.group_extensions import NO_TARGET
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.error_codes import ErrorCode

REGISTRATION: Final = "registration"
"""The key of the timer for the deadlines of registered members."""
STANDBY_RECONNECT_MS: Final = 3_000
"""How long a join phase waits for a promoted standby that hung up after it learned of the rebalance."""


def reconnect_timer(member: Member) -> Hashable:
    """The key of the timer."""
    return "standby reconnect", member


def reconsider_admission(ctx: Context, group: Group, now_ms: int) -> None:
    if group.ext.open_batches:
        return  # decided once, at the end of the batch
    if group.append_in_flight:
        ctx.run_exclusive(group, partial(reconsider_admission, ctx, group), now_ms)
    elif group.state is PREPARING:
        standby_members.promote_standbys(group)  # one that hung up when this rebalance started may be back
        rebalance.maybe_complete_join(ctx, group, now_ms)
        registered_wait.recheck(ctx, group, now_ms)
    elif group.state is STABLE and not _demote_over_target(ctx, group, now_ms) and group.members.standbys:
        _admit_waiting(ctx, group, now_ms)


# -- promoted standbys that hang up ------------------------------------------------------------------------------------


def on_disconnect(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """A promoted standby that has hung up before it joined is a standby again, and is not waited for.

    kafka-go hangs up when it learns that it has to join, and joins over a new connection. It is waited for a little:
    left out of this rebalance, it would cause the next one, and hang up again.
    """
    if not _is_expected_to_join(group, member):
        return
    if not member.notified_of_rebalance:
        _return_to_standby(ctx, group, member, now_ms)
        return
    began_ms = group.rebalance_began_ms

    def not_back(now_ms: int) -> None:
        if member.disconnected and group.rebalance_began_ms == began_ms and _is_expected_to_join(group, member):
            _return_to_standby(ctx, group, member, now_ms)

    ctx.schedule(group, reconnect_timer(member), now_ms + STANDBY_RECONNECT_MS, not_back)


def _is_expected_to_join(group: Group, member: Member) -> bool:
    is_expected = member.role is Role.PROMOTED and member.awaiting_join is None
    return group.state is PREPARING and is_expected and group.members.get(member.id) is member


def _return_to_standby(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    group.members.to_standby(member)
    rebalance.maybe_complete_join(ctx, group, now_ms)


# -- stable groups -----------------------------------------------------------------------------------------------------


def _admit_waiting(ctx: Context, group: Group, now_ms: int) -> None:
    registered = group.extensions.registered
    present = [member for member in group.members.standbys.values() if not member.disconnected]
    waiting = [member for member in present if member.instance_id in registered]
    standbys = [member for member in present if member.instance_id not in registered]
    complete = bool(waiting) and standby_members.all_registered_present(group)
    has_room = standby_members.free_slots(group) != 0
    if has_room and complete:
        cause = Cause(CauseCode.REGISTRATION_COMPLETE, count=len(waiting))
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=waiting[-1])
    elif has_room and standbys:
        cause = Cause(CauseCode.STANDBYS_ADMITTED, count=len(standbys))
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=standbys[0])
    elif complete:
        _registered_become_standbys(ctx, group)


def _registered_become_standbys(ctx: Context, group: Group) -> None:
    """All of them have joined, and there is no slot for any: the registration is complete."""

    def stored(now_ms: int) -> None:
        ctx.cancel(group, REGISTRATION)
        targeted_rejoin.request_rejoin_of_standbys(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.REGISTRATION_END_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, cause=cause)

    ctx.append(group, list(extensions_record(group, registered={})), stored, failed)


def _demote_over_target(ctx: Context, group: Group, now_ms: int) -> bool:
    """`target.group.size` was lowered: the last that joined are removed and rejoin as standbys. One rebalance."""
    target = group.extensions.target_size
    if target == NO_TARGET or not standby_members.allows_standbys(group, group.stored.protocol_name):
        return False
    if len(group.members.by_id) + len(group.ext.vacancies) <= target:
        return False
    # Disconnected members first: the remaining ones have to form the next generation.
    demoted: list[Member] = sorted(group.members, key=lambda member: (member.disconnected, member.join_order))[target:]
    if not demoted:
        # No member is too many, but the vacancies are.
        removed = group.ext.vacancies[0].member
        cause = Cause(CauseCode.VACANCY_CLOSED, count=target)
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=removed)
        return True
    over_target = Cause(CauseCode.OVER_TARGET_SIZE, count=target)
    for member in demoted:
        ctx.emit(EventKind.MEMBER_LEFT, group, now_ms, member=member, cause=over_target)
        rebalance.remove_member(ctx, group, member)
    cause = Cause(CauseCode.MEMBERS_BECAME_STANDBYS, count=len(demoted), total=target)
    rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=demoted[0])
    return True


# -- the end of the join phase -----------------------------------------------------------------------------------------


def may_complete(group: Group) -> bool:
    if group.ext.open_batches or group.join_phase is JoinPhase.BACKOFF:
        return False
    # Without any member the group becomes empty, also if members are registered.
    is_waiting = group.join_phase is JoinPhase.AWAITING_REGISTERED and len(group.members.by_id) > 0
    return not is_waiting or standby_members.all_registered_present(group)


def before_complete(ctx: Context, group: Group, now_ms: int) -> Sequence[Member] | None:
    """The members that the new generation leaves out; None if there is none yet."""
    if not group.members.by_id:
        return _without_members(ctx, group, now_ms)
    return standby_members.over_target(group)


def without_leader(ctx: Context, group: Group, now_ms: int) -> Sequence[Member] | None:
    """Makes room for the members that have joined; if there are none, a standby may form the next generation."""
    if group.members.awaiting_join_count:
        _evict_absent_over_target(ctx, group, now_ms)
        left_out = standby_members.over_target(group)
        if rebalance.select_leader(group, left_out) is not None:
            return left_out
    standby_members.promote_standbys(group, replace_all=True)
    return None


def _without_members(ctx: Context, group: Group, now_ms: int) -> Sequence[Member] | None:
    if group.join_phase is JoinPhase.AWAITING_REGISTERED:
        # No generation was stored since the group was empty.
        ctx.cancel(group, rebalance.JOIN_PHASE)
        group.transition_to(EMPTY)
        return None
    if group.members.standbys:
        standby_members.promote_standbys(group, also_disconnected=True)
        rebalance.restart_join_phase(ctx, group, now_ms)
        return None
    return ()


def _evict_absent_over_target(ctx: Context, group: Group, now_ms: int) -> None:
    """No member with an assignment has joined, and there is a target: they would keep out those that have joined.

    As when a target is lowered, they are unknown from then on, and rejoin as standbys.
    """
    target = group.extensions.target_size
    absent = [member for member in group.members if member.awaiting_join is None and member.role is Role.ACTIVE]
    absent.sort(key=lambda member: member.join_order)
    for member in absent[max(0, target - group.members.awaiting_join_count) :]:
        cause = Cause(CauseCode.ABSENT_OVER_TARGET_SIZE, count=target)
        ctx.emit(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
        rebalance.remove_member(ctx, group, member)


def generation_records(group: Group, left_out: Sequence[Member]) -> Sequence[Record]:
    """Registered members that have joined, or are in the generation, are registered no longer."""
    registered = group.extensions.registered
    if not registered:
        return ()
    absent = {member for member in left_out if member.awaiting_join is None}
    joined = {member.instance_id for member in group.members.by_id.values() if member not in absent}
    remaining = {instance_id: at_ms for instance_id, at_ms in registered.items() if instance_id not in joined}
    return extensions_record(group, registered=remaining) if len(remaining) < len(registered) else ()


def generation_formed(ctx: Context, group: Group, left_out: Sequence[Member], now_ms: int) -> None:
    """The members that the generation leaves out are standbys."""
    for member in left_out:
        pending = group.members.set_awaiting_join(member, None)
        group.members.to_standby(member)
        standby_members.emit_standby_added(ctx, group, member, now_ms)
        if pending is not None:
            session.refresh(ctx, group, member, now_ms)
            ctx.reply(pending.reply_handle, join_response(group, member))
