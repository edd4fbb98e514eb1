"""The join phase: how a rebalance starts, which members it waits for, and how it ends in a new generation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.group import INITIAL_DELAYS, Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, Role
from holdfast.coordinator.classic.responses import join_error, join_response, sync_error
from holdfast.coordinator.classic.state_machine import COMPLETING, EMPTY, PREPARING, STABLE
from holdfast.coordinator.classic.sync_barrier import PENDING_SYNC, fail_pending_syncs, late_members
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GenerationKey, GenerationValue, GroupMetadataKey, GroupMetadataValue

JOIN_PHASE: Final = "join phase"
"""The key of the timer."""
MIN_JOIN_WAIT_MS: Final = 1_000
"""A member may give 0 as its rebalance timeout. A join phase that no member joins is not restarted every millisecond
for that: a client with many such groups would take all the time there is. Kafka restarts it."""
RETRY_MS: Final = 1_000
"""How soon an empty group is stored again after a failure: no member waits for it."""

# -- start -------------------------------------------------------------------------------------------------------------


def prepare_rebalance(
    ctx: Context,
    group: Group,
    now_ms: int,
    *,
    cause: Cause,
    member: Member | None = None,
    reason: str | None = None,
    backoff: bool = False,
) -> None:
    """Starts a rebalance for a cause other than a JoinGroup, unless one is in progress."""
    if group.state is PREPARING:
        join_rebalance(ctx, group, now_ms, member=member)
    else:
        start_rebalance(ctx, group, now_ms, cause=cause, member=member, reason=reason, backoff=backoff)


def join_rebalance(ctx: Context, group: Group, now_ms: int, *, member: Member | None) -> None:
    """A rebalance is in progress. Completes its join phase if no member is missing now."""
    ctx.hooks.joined_rebalance(ctx, group, member, now_ms)
    maybe_complete_join(ctx, group, now_ms)


def start_rebalance(
    ctx: Context,
    group: Group,
    now_ms: int,
    *,
    cause: Cause,
    member: Member | None,
    reason: str | None,
    backoff: bool = False,
) -> None:
    """Completes the join phase at once if no member is missing.

    With `backoff` the join phase does not complete before its phase is set to COLLECTING.
    """
    is_first = group.state is EMPTY
    if group.state is COMPLETING:
        group.assignments_cleared = True
        fail_pending_syncs(ctx, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    if not is_first:
        ctx.cancel(group, PENDING_SYNC)
    ctx.hooks.rebalance_started(ctx, group)
    group.transition_to(PREPARING)
    group.rebalance_began_ms = now_ms
    group.leader_not_notified = group.reloaded_awaiting_sync = False
    ctx.emit(EventKind.REBALANCE_STARTED, group, now_ms, member=member, cause=cause, reason=reason)
    if not is_first:
        group.join_phase = JoinPhase.BACKOFF if backoff else JoinPhase.COLLECTING
        schedule_join_timeout(ctx, group, now_ms + group.members.max_rebalance_timeout_ms())
    elif not ctx.hooks.first_rebalance(ctx, group, member):
        start_initial_delay(ctx, group, now_ms)
    maybe_complete_join(ctx, group, now_ms)


def start_initial_delay(ctx: Context, group: Group, now_ms: int) -> None:
    """KIP-134: a group that leaves EMPTY gives its other members time to join."""
    delay_ms = ctx.config.initial_rebalance_delay_ms
    if delay_ms > 0:
        group.join_phase = JoinPhase.INITIAL_DELAY
        group.initial_delay_left_ms = max(group.members.max_rebalance_timeout_ms() - delay_ms, 0)
        schedule_join_timeout(ctx, group, now_ms + delay_ms)
        return
    group.join_phase = JoinPhase.COLLECTING
    if ctx.hooks.may_complete(group):
        complete_join(ctx, group, now_ms)
    else:
        schedule_join_timeout(ctx, group, now_ms)


def restart_join_phase(ctx: Context, group: Group, now_ms: int) -> None:
    """The join phase ended without a generation."""
    schedule_join_timeout(ctx, group, now_ms + max(MIN_JOIN_WAIT_MS, group.members.max_rebalance_timeout_ms()))


def schedule_join_timeout(ctx: Context, group: Group, at_ms: int) -> None:
    ctx.schedule(group, JOIN_PHASE, at_ms, partial(_join_timed_out, ctx, group))


def _join_timed_out(ctx: Context, group: Group, now_ms: int) -> None:
    left_ms = group.initial_delay_left_ms
    if group.join_phase is JoinPhase.INITIAL_DELAY_EXTENDED and left_ms > 0:
        delay_ms = min(ctx.config.initial_rebalance_delay_ms, left_ms)
        group.join_phase = JoinPhase.INITIAL_DELAY
        group.initial_delay_left_ms = left_ms - delay_ms
        schedule_join_timeout(ctx, group, now_ms + delay_ms)
    else:
        complete_join(ctx, group, now_ms)


# -- members that are removed ------------------------------------------------------------------------------------------


def remove_member(ctx: Context, group: Group, member: Member) -> None:
    """Removes a member and answers its awaited requests. The caller goes on with `after_removed`."""
    ctx.cancel(group, member)
    ctx.hooks.member_removed(ctx, group, member)
    member.leave_connection()
    awaiting_join = group.members.set_awaiting_join(member, None)
    if awaiting_join is not None:
        ctx.reply(awaiting_join.reply_handle, join_error(ErrorCode.UNKNOWN_MEMBER_ID, "", awaiting_join.api_version))
    if member.awaiting_sync_response is not None:
        # Apache Kafka never answers this one; the client would wait for its own timeout.
        ctx.reply(member.awaiting_sync_response.reply_handle, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.awaiting_sync_response = None
    group.members.remove(member)
    if member.assignment:
        group.departed_members.append(member)
    group.failed_leaders.discard(member.id)
    if group.leader_id == member.id:
        # The end of the join phase selects one among the members that joined.
        group.leader_id = next((other.id for other in group.members.by_id.values()), None)


def after_removed(
    ctx: Context, group: Group, removed: Sequence[Member], now_ms: int, *, cause: Cause, expired: bool = False
) -> None:
    """Members were removed: the others rebalance, or one that was waited for is waited for no longer."""
    if not removed or group.state not in (COMPLETING, STABLE):
        maybe_complete_join(ctx, group, now_ms, also_in_delay=expired)
    elif not ctx.hooks.after_removed(ctx, group, removed, expired, now_ms):
        prepare_rebalance(ctx, group, now_ms, cause=cause, member=removed[0])


# -- the end of the join phase -----------------------------------------------------------------------------------------


def maybe_complete_join(ctx: Context, group: Group, now_ms: int, *, also_in_delay: bool = False) -> None:
    """Completes the join phase if no member is missing.

    The initial delay is for members that may still come. As in Kafka, a member whose session ends ends the delay.
    """
    if group.state is not PREPARING or group.append_in_flight or not group.members.has_all_members_joined:
        return
    is_delayed = group.join_phase in INITIAL_DELAYS and not also_in_delay
    if not is_delayed and ctx.hooks.may_complete(group):
        complete_join(ctx, group, now_ms)


def complete_join(ctx: Context, group: Group, now_ms: int) -> None:
    """Ends the join phase. Members that did not join are removed, unless they are static."""
    late = [m for m in group.members.by_id.values() if m.awaiting_join is None and m.instance_id is None]
    for member in late:
        ctx.emit(EventKind.DROPPED, group, now_ms, member=member, cause=Cause(CauseCode.JOIN_TIMED_OUT))
        remove_member(ctx, group, member)
    left_out = ctx.hooks.before_complete(ctx, group, now_ms)
    group.join_phase = JoinPhase.COLLECTING if group.state is PREPARING else JoinPhase.NONE
    if left_out is None:
        return
    if not group.members.by_id:
        _become_empty(ctx, group, now_ms)
        return
    leader = select_leader(group, left_out)
    if leader is None:
        left_out = ctx.hooks.without_leader(ctx, group, now_ms)
        leader = None if left_out is None else select_leader(group, left_out)
    if left_out is None or leader is None:
        # Only static members, and none of them has joined: the group waits until one does or their sessions end.
        restart_join_phase(ctx, group, now_ms)
        return
    ctx.cancel(group, JOIN_PHASE)
    _init_next_generation(ctx, group, leader, left_out, now_ms)


def select_leader(group: Group, left_out: Sequence[Member]) -> Member | None:
    """The old leader if it has joined, else any member that has; preferably one that has not just failed to assign."""
    excluded = set(left_out)
    joined = [m for m in group.members.by_id.values() if m.awaiting_join is not None and m not in excluded]
    able = [member for member in joined if member.id not in group.failed_leaders] or joined
    leader = group.members.get(group.leader_id) if group.leader_id is not None else None
    return leader if leader in able else next(iter(able), None)


def _init_next_generation(ctx: Context, group: Group, leader: Member, left_out: Sequence[Member], now_ms: int) -> None:
    """Stores the new generation before any member learns of it: it must not go back, whatever happens."""
    protocol_name = group.members.select_protocol()
    excluded = set(left_out)
    members = [member for member in group.members.by_id.values() if member not in excluded]
    record = GenerationValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=protocol_name,
        leader=leader.id,
        current_state_timestamp=now_ms,
        members=[group.generation_member(member, protocol_name) for member in members],
    )

    def formed(now_ms: int) -> None:
        _generation_formed(ctx, group, leader, left_out, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, cause=Cause(CauseCode.GENERATION_NOT_STORED, detail=code.name))
        for member in group.members.by_id.values():
            member.first_join_answered()
            pending = group.members.set_awaiting_join(member, None)
            if pending is not None:
                ctx.reply(pending.reply_handle, join_error(code, member.id, pending.api_version))
                session.refresh(ctx, group, member, now_ms)
        restart_join_phase(ctx, group, now_ms)

    records = [(GenerationKey(group.id), record), *ctx.hooks.generation_records(group, left_out)]
    ctx.append(group, records, formed, failed)


def _generation_formed(ctx: Context, group: Group, leader: Member, left_out: Sequence[Member], now_ms: int) -> None:
    group.transition_to(COMPLETING)
    group.leader_id = leader.id
    if left_out:
        ctx.hooks.generation_formed(ctx, group, left_out, now_ms)
    members = group.members.by_id
    ctx.emit(
        EventKind.GENERATION_FORMED,
        group,
        now_ms,
        member=leader,
        cause=Cause(CauseCode.PROTOCOL_SELECTED, detail=group.stored.protocol_name),
        members=len(members),
        previous_generation=group.generation - 1,
    )
    group.members.pending_sync_members = set(members)
    for member in members.values():
        pending = group.members.set_awaiting_join(member, None)
        member.missed_join_phase = pending is None
        member.role = Role.ACTIVE
        session.refresh(ctx, group, member, now_ms)
        if pending is not None:
            ctx.reply(pending.reply_handle, join_response(group, member, with_members=member is leader))
    schedule_pending_sync(ctx, group, now_ms)


def _become_empty(ctx: Context, group: Group, now_ms: int) -> None:
    # The generation advances here too, so that no former member can commit as one.
    record = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
        members=[],
    )

    def emptied(now_ms: int) -> None:
        ctx.cancel(group, JOIN_PHASE)
        group.leader_id = None
        if group.members.awaiting_join_count or len(group.members.by_id):
            return
        group.transition_to(EMPTY)
        group.departed_members.clear()
        ctx.emit(EventKind.BECAME_EMPTY, group, now_ms, cause=Cause(CauseCode.LAST_MEMBER_GONE), members=0)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, cause=Cause(CauseCode.EMPTY_GROUP_NOT_STORED, detail=code.name))
        schedule_join_timeout(ctx, group, now_ms + RETRY_MS)

    ctx.append(group, [(GroupMetadataKey(group.id), record)], emptied, failed)


# -- members that do not sync ------------------------------------------------------------------------------------------


def schedule_pending_sync(ctx: Context, group: Group, now_ms: int) -> None:
    """KAFKA-12890: a member that joined but does not sync must not hold the group up, heartbeats or not."""
    at_ms = now_ms + group.members.max_rebalance_timeout_ms()
    ctx.schedule(group, PENDING_SYNC, at_ms, partial(_expire_pending_sync, ctx, group))


def _expire_pending_sync(ctx: Context, group: Group, now_ms: int) -> None:
    late = late_members(group)
    for member in late:
        ctx.emit(EventKind.DROPPED, group, now_ms, member=member, cause=Cause(CauseCode.SYNC_TIMED_OUT))
        remove_member(ctx, group, member)
    if late:
        prepare_rebalance(ctx, group, now_ms, cause=Cause(CauseCode.PENDING_SYNC_EXPIRED), member=late[0])
