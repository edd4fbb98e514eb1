"""The first rebalance of a group that waits for its registered members (KIP-469).

An empty group has no member to disturb. There the first joins of registered members are awaited, and the join phase
completes when the last of them has joined, without the initial delay.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Final

from holdfast.coordinator.classic import rebalance, session
from holdfast.coordinator.classic.group import CONSUMER, Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, PendingResponse
from holdfast.coordinator.classic.responses import join_error
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode

JOIN_KEEPALIVE_FRACTION: Final = 0.75
"""Of its rebalance timeout. A client waits that long for the response to its join, or a little longer."""
MIN_JOIN_KEEPALIVE_MS: Final = 1_000
MAX_JOIN_KEEPALIVE_MS: Final = 240_000


def join_keepalive_timer(member: Member) -> Hashable:
    """The key of the timer."""
    return "join keepalive", member


def _is_registered(group: Group, member: Member) -> bool:
    return group.protocol_type == CONSUMER and member.instance_id in group.extensions.registered


def start_waiting(ctx: Context, group: Group, member: Member | None) -> bool:
    """An empty group with registered members waits for exactly those. Returns whether it does."""
    if member is None or not _is_registered(group, member):
        return False
    group.join_phase = JoinPhase.AWAITING_REGISTERED
    extend_wait(ctx, group)
    return True


def extend_wait(ctx: Context, group: Group) -> None:
    """Until the last deadline of a registration."""
    if group.join_phase is JoinPhase.AWAITING_REGISTERED and group.extensions.registered:
        rebalance.schedule_join_timeout(ctx, group, max(group.extensions.registered.values()))


def member_joined(ctx: Context, group: Group, member: Member | None, now_ms: int) -> None:
    """A member that is not registered does not wait for those that are."""
    if group.join_phase is JoinPhase.AWAITING_REGISTERED and member is not None and not _is_registered(group, member):
        rebalance.start_initial_delay(ctx, group, now_ms)


def recheck(ctx: Context, group: Group, now_ms: int) -> None:
    """A registration ended: the members that it was for do not wait for those of another one."""
    is_waiting = group.join_phase is JoinPhase.AWAITING_REGISTERED
    if is_waiting and not all(_is_registered(group, member) for member in group.members):
        rebalance.start_initial_delay(ctx, group, now_ms)


# -- the joins that are awaited ----------------------------------------------------------------------------------------


def hold_join(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """The member's join is awaited, as long as it takes."""
    if group.join_phase is not JoinPhase.AWAITING_REGISTERED:
        return
    if member.disconnected:
        on_disconnect(ctx, group, member, now_ms)
    elif member.awaiting_join is not None:
        _keep_join_alive(ctx, group, member, member.awaiting_join, now_ms)


def _keep_join_alive(ctx: Context, group: Group, member: Member, pending: PendingResponse, now_ms: int) -> None:
    """Before its timeout the client is asked to join once more, with the member id that it has already.

    Every client answers MEMBER_ID_REQUIRED with another join, and does not log it. So the wait is as long as the
    registration says, and not as long as the shortest timeout of a client.
    """
    longest_ms = int(member.rebalance_timeout_ms * JOIN_KEEPALIVE_FRACTION)
    at_ms = now_ms + min(max(longest_ms, MIN_JOIN_KEEPALIVE_MS), MAX_JOIN_KEEPALIVE_MS)
    ctx.schedule(group, join_keepalive_timer(member), at_ms, partial(_ask_to_rejoin, ctx, group, member, pending))


def _ask_to_rejoin(ctx: Context, group: Group, member: Member, pending: PendingResponse, now_ms: int) -> None:
    if member.awaiting_join is not pending:
        return
    group.members.set_awaiting_join(member, None)
    member.first_join_answered()
    session.refresh(ctx, group, member, now_ms)
    ctx.reply(pending.reply_handle, join_error(ErrorCode.MEMBER_ID_REQUIRED, member.id, pending.api_version))


def on_disconnect(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """A member that has hung up cannot receive the response to its join: it has to join again."""
    is_waiting = group.join_phase is JoinPhase.AWAITING_REGISTERED
    if is_waiting and member.awaiting_join is not None and group.members.get(member.id) is member:
        cause = Cause(CauseCode.DISCONNECTED_WHILE_JOINING)
        ctx.emit(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
        rebalance.remove_member(ctx, group, member)
        rebalance.maybe_complete_join(ctx, group, now_ms)
