"""The waiting seat: a member that is in the group without a share.

Its joins are answered at once, as a follower, in the current generation; its SyncGroup gets an empty share; it sends
heartbeats and ends with its session like anyone. It is left out of the leader's list and never waited for, and whatever
it does concerns nobody else. To its application it is the everyday consumer of a group that has more members than
partitions. Announced members wait so for those who were announced with them, standbys for somebody's place.

Only groups of type `consumer` have seats: nobody else's empty share is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from holdfast.coordinator import presence, sessions
from holdfast.coordinator.answers import empty_share, joined, sync_error
from holdfast.coordinator.context import Context
from holdfast.coordinator.extensions import NO_TARGET
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Member, Protocol
from holdfast.coordinator.states import COMPLETING, PREPARING, STABLE
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.coordinator.joining import Join
    from holdfast.coordinator.syncing import Sync


WITHOUT_EMPTY_SHARE: Final = frozenset({"stream"})
"""Assignors whose members cannot read our empty share: Kafka Streams finds its tasks in the user data."""


def room(group: Group) -> int | None:
    """How many more members may have a share; None: any number."""
    target = group.extensions.target_size
    if target == NO_TARGET or not has_seats(group, group.stored.protocol_name):
        return None
    return max(0, target - len(group.roster) - len(group.places))


def must_wait(group: Group, instance_id: str | None) -> bool:
    """Whether a newcomer takes a seat: it was announced with others, or there are enough without it.

    While a rebalance is prepared it joins as always, and the end of the join phase finds out.
    """
    if group.state not in (COMPLETING, STABLE) or group.protocol_type != CONSUMER:
        return False
    if room(group) == 0:
        return True
    return instance_id in group.extensions.registered and not is_last_expected(group, instance_id)


def can_sit(group: Group, protocols: Iterable[Protocol]) -> bool:
    """Only under the protocol in use: a client that is told of one that it did not offer gives up."""
    return has_seats(group, group.stored.protocol_name) and any(
        protocol.name == group.stored.protocol_name for protocol in protocols
    )


def has_seats(group: Group, protocol_name: str | None) -> bool:
    return group.protocol_type == CONSUMER and protocol_name not in WITHOUT_EMPTY_SHARE


def sit_down(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """A newcomer, answered at once."""
    member.waits, member.parked_join = True, None
    member.is_new = False  # its first join is answered; a later one that is parked keeps it alive
    group.roster.add(member)
    presence.heard(group, member, command.client)
    sessions.refresh(ctx, group, member, now_ms)
    tell_seated(ctx, group, member, now_ms, reason=command.request.reason)
    ctx.reply(command.ticket, joined(group, member))


def tell_seated(ctx: Context, group: Group, member: Member, now_ms: int, reason: str | None = None) -> None:
    announced = member.instance_id in group.extensions.registered
    cause = "announced, and others are expected" if announced else "a standby: there are enough members without it"
    ctx.tell(EventKind.SEATED, group, now_ms, member=member, cause=cause, reason=reason)


def rejoin(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """Whatever its bytes, and however often."""
    group.roster.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.request.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.call = Call.NOT  # it has come, and none of the open places is for it
    sessions.refresh(ctx, group, member, now_ms)
    ctx.reply(command.ticket, joined(group, member))


def heartbeat(ctx: Context, group: Group, member: Member, generation: int, now_ms: int) -> ErrorCode:
    """In an old generation it is told to join the new one, in which it waits on."""
    sessions.refresh(ctx, group, member, now_ms)
    if generation != group.generation or member.call is Call.CALLED:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def sync(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    sessions.refresh(ctx, group, member, now_ms)
    if command.request.generation_id != group.generation:
        ctx.reply(command.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        ctx.reply(command.ticket, empty_share(group, with_epoch=command.has_tags))


def leave(group: Group, member: Member) -> None:
    """It goes, and nobody notices."""
    if member.session is not None:
        member.session.cancel()
    presence.forget(member)
    group.roster.remove(member)


# -- those who are announced -------------------------------------------------------------------------------------------


def missing(group: Group) -> list[str]:
    """The instance ids that were announced and are not there."""
    holder_of = group.roster.holder_of
    holders = ((instance_id, holder_of(instance_id)) for instance_id in group.extensions.registered)
    return [
        instance_id
        for instance_id, holder in holders
        if holder is None or (holder.is_away and (holder.waits or group.is_held))
    ]


def is_last_expected(group: Group, instance_id: str | None) -> bool:
    """Whether this one, who was announced, is the only one missing, so that the group can take all of them in."""
    few_missing = _counted(group) + 1 >= len(group.extensions.registered)
    return group.state is STABLE and few_missing and missing(group) == [instance_id]


def all_here(group: Group) -> bool:
    """Whether nobody is missing."""
    return _counted(group) >= len(group.extensions.registered) and not missing(group)


def _counted(group: Group) -> int:
    """As many as can be there of those who were announced, without a look at each of them whenever one arrives.

    They wait or have parked their joins; only what was loaded may have a share.
    """
    parked = group.roster.parked_joins if group.state is PREPARING else 0
    return len(group.roster.waiting) + parked + group.announced_members


# -- those who stop waiting --------------------------------------------------------------------------------------------


def promote(group: Group, *, also_away: bool = False, nobody_else: bool = False) -> None:
    """A rebalance begins: those who wait take part in it as far as there is room, the announced first.

    If nobody who has a share is there, then as if there were nobody: members that are away cannot form a generation.
    """
    waiting = [member for member in group.roster.waiting.values() if also_away or not member.is_away]
    waiting.sort(key=attrgetter("number"))
    registered = group.extensions.registered
    if registered:
        waiting.sort(key=lambda member: member.instance_id not in registered)
    free = room(group)
    if free is not None and (nobody_else or all(member.is_away for member in group.roster)):
        free = group.extensions.target_size
    for member in waiting[:free]:
        group.roster.promote(member)


def surplus(group: Group) -> list[Member]:
    """The join phase is over: the newcomers for whom there is no share, and those who waited and are away.

    Who has come has the share rather than one that has not: its seat would be kept, and its share lie idle.
    """
    target = group.extensions.target_size
    too_many = len(group.roster) - target if target != NO_TARGET else 0
    count = max(too_many, sum(map(_is_lost, group.roster)))
    if count <= 0 or not has_seats(group, group.roster.elect_protocol()):
        return []
    newcomers = [member for member in group.roster if not member.in_generation]
    newcomers.sort(key=lambda member: (member.parked_join is None, _is_lost(member), member.number))
    return newcomers[-count:]


def _is_lost(member: Member) -> bool:
    """Whether it only waited so far, was to take part, and hung up before it joined."""
    return member.had_seat and member.is_away and member.parked_join is None
