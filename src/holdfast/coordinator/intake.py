"""Who of those who wait is to have a share now, and who has one too many.

Asked whenever the answer may have changed: a member arrived, a group became stable, a registration ended, a config was
altered. What follows is at most one rebalance, which takes in everybody for whom there is room.
"""

from __future__ import annotations

from typing import Final

from holdfast.coordinator import batches, calls, rebalance, seats
from holdfast.coordinator.context import Context
from holdfast.coordinator.extensions import NO_TARGET
from holdfast.coordinator.group import Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Member
from holdfast.coordinator.states import PREPARING, STABLE
from holdfast.wire.error_codes import ErrorCode


def review(ctx: Context, group: Group, now_ms: int) -> None:
    if group.gathering:
        return  # asked when the batch is in: once, and not with each of its thousands
    if group.busy:
        ctx.when_free(group, lambda later_ms: review(ctx, group, later_ms), now_ms)
    elif group.state is PREPARING:
        seats.promote(group)  # one that hung up when this rebalance had begun, and is there again
        batches.recall(group)
        rebalance.maybe_complete(ctx, group, now_ms)
        rebalance.review_hold(ctx, group, now_ms)
    elif group.state is STABLE and not _let_surplus_go(ctx, group, now_ms) and group.roster.waiting:
        _take_in(ctx, group, now_ms)


RECONNECT_MS: Final = 3_000
"""How long a join phase waits for a standby that hung up after it was asked to join."""


def connection_lost(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """Whoever waited, was to take part and has hung up before it joined waits again, and nobody waits for it.

    kafka-go hangs up when it hears that it is to join, and joins over a new connection. It is waited for a little: left
    out of this rebalance, it would cause the next one, and hang up again.
    """
    if not _is_to_join(group, member):
        return
    if not member.told_to_join:
        _sit_again(ctx, group, member, now_ms)
        return
    began_ms = group.rebalance_began_ms

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, not_back, now_ms)

    def not_back(now_ms: int) -> None:
        if member.is_away and group.rebalance_began_ms == began_ms and _is_to_join(group, member):
            _sit_again(ctx, group, member, now_ms)

    ctx.timers.at(now_ms + RECONNECT_MS, time_is_up)


def _is_to_join(group: Group, member: Member) -> bool:
    to_join = member.had_seat and not member.waits and member.parked_join is None
    return group.state is PREPARING and to_join and group.roster.get(member.id) is member


def _sit_again(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    member.had_seat = False
    group.roster.seat(member)
    rebalance.maybe_complete(ctx, group, now_ms)


def _take_in(ctx: Context, group: Group, now_ms: int) -> None:
    registered = group.extensions.registered
    present = [member for member in group.roster.waiting.values() if not member.is_away]
    announced = [member for member in present if member.instance_id in registered]
    standbys = [member for member in present if member.instance_id not in registered]
    complete = bool(announced) and seats.all_here(group)
    has_room = seats.room(group) != 0
    if has_room and complete:
        cause = f"the announced members are all there: {len(announced)}"
        rebalance.prepare(ctx, group, now_ms, cause=cause, member=announced[-1])
    elif has_room and standbys:
        cause = f"members that waited may have a share: {len(standbys)}"
        rebalance.prepare(ctx, group, now_ms, cause=cause, member=standbys[0])
    elif complete:
        _become_standbys(ctx, group)


def _become_standbys(ctx: Context, group: Group) -> None:
    """They are all there, and there is room for none: nobody else is to be waited for."""

    def done(now_ms: int) -> None:
        if group.registration_timer is not None:
            group.registration_timer.cancel()
        calls.call_standbys(ctx, group, now_ms)  # as any standby, to places that are open already

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, cause=f"the end of a registration was not stored: {code.name}")

    ctx.store(group, list(group.extensions_record(registered={})), done, failed)


def _let_surplus_go(ctx: Context, group: Group, now_ms: int) -> bool:
    """`target.group.size` was lowered: the youngest leave and come back as standbys. One rebalance."""
    target = group.extensions.target_size
    if target == NO_TARGET or not seats.has_seats(group, group.stored.protocol_name):
        return False
    if len(group.roster) + len(group.places) <= target:
        return False
    # Before them whoever is away: those who are left have to form the next generation.
    surplus: list[Member] = sorted(group.roster, key=lambda member: (member.is_away, member.number))[target:]
    if not surplus:
        # Nobody has to go, but the open places would be too many.
        gone = group.places[0].member
        rebalance.prepare(ctx, group, now_ms, cause=f"target.group.size is {target}: a place is closed", member=gone)
        return True
    for member in surplus:
        ctx.tell(EventKind.MEMBER_LEFT, group, now_ms, member=member, cause=f"target.group.size is {target}")
        rebalance.remove(ctx, group, member)
    became = "a member became a standby" if len(surplus) == 1 else f"{len(surplus)} members became standbys"
    cause = f"target.group.size is {target}: {became}"
    rebalance.prepare(ctx, group, now_ms, cause=cause, member=surplus[0])
    return True
