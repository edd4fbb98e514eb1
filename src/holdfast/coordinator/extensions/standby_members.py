"""Standbys: members that are in the group without an assignment.

A standby's joins are answered at once, as a follower, in the current generation; its SyncGroup gets an empty
assignment; it sends heartbeats and expires like any member. The leader does not see it, no rebalance waits for it, and
its requests do not affect other members. To its application it is the everyday consumer of a group that has more
members than partitions. Registered members wait as standbys for the others that are registered, the others for a
vacancy.

Only groups of type `consumer` have standbys: the empty assignment of other protocol types is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.commands import Join, Sync
from holdfast.coordinator.classic.group import CONSUMER, Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, Protocol, RejoinRequest, Role
from holdfast.coordinator.classic.responses import assignment_response, join_error, join_response, sync_error
from holdfast.coordinator.classic.state_machine import COMPLETING, DISPATCH, PREPARING, STABLE, Outcome, RequestKind
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions.batched_responses import reopen_joins
from holdfast.coordinator.group_extensions import NO_TARGET
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode

WITHOUT_EMPTY_ASSIGNMENT: Final = frozenset({"stream"})
"""Assignors whose members cannot read our empty assignment: Kafka Streams finds its tasks in the user data."""


def free_slots(group: Group) -> int | None:
    """How many more members may have an assignment; None for any number."""
    target = group.extensions.target_size
    if target == NO_TARGET or not allows_standbys(group, group.stored.protocol_name):
        return None
    return max(0, target - len(group.members.by_id) - len(group.ext.vacancies))


def should_be_standby(group: Group, protocols: Iterable[Protocol], instance_id: str | None) -> bool:
    """Whether a new member becomes a standby: it is registered with others, or there are enough without it.

    While a rebalance is prepared it joins as always, and the end of the join phase decides.
    """
    if group.state not in (COMPLETING, STABLE) or not can_be_standby(group, protocols):
        return False
    if free_slots(group) == 0:
        return True
    return instance_id in group.extensions.registered and not is_last_registered(group, instance_id)


def can_be_standby(group: Group, protocols: Iterable[Protocol]) -> bool:
    """Only under the selected protocol: a client that gets one that it did not offer gives up."""
    return allows_standbys(group, group.stored.protocol_name) and any(
        protocol.name == group.stored.protocol_name for protocol in protocols
    )


def allows_standbys(group: Group, protocol_name: str | None) -> bool:
    return group.protocol_type == CONSUMER and protocol_name not in WITHOUT_EMPTY_ASSIGNMENT


def add_standby(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """A new member, answered at once."""
    row = DISPATCH[RequestKind.JOIN_STANDBY]
    if row[group.state] is not Outcome.CURRENT_GENERATION:
        ctx.reply(command.reply_handle, join_error(row.error(group.state), "", command.api_version))
        return
    member.role, member.awaiting_join = Role.STANDBY, None
    group.members.add(member)
    session.keep_alive(ctx, group, member, command.client, now_ms)
    emit_standby_added(ctx, group, member, now_ms, reason=command.request.reason)
    ctx.reply(command.reply_handle, join_response(group, member))


def emit_standby_added(ctx: Context, group: Group, member: Member, now_ms: int, reason: str | None = None) -> None:
    is_registered = member.instance_id in group.extensions.registered
    cause = Cause(CauseCode.REGISTERED_MEMBERS_MISSING if is_registered else CauseCode.ENOUGH_MEMBERS)
    ctx.emit(EventKind.STANDBY_ADDED, group, now_ms, member=member, cause=cause, reason=reason)


def rejoin(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """Answered at once, whatever it subscribes to and however often it joins."""
    row = DISPATCH[RequestKind.JOIN_STANDBY]
    if row[group.state] is not Outcome.CURRENT_GENERATION:
        ctx.reply(command.reply_handle, join_error(row.error(group.state), member.id, command.api_version))
        return
    group.members.update(member, command)
    member.rejoin = RejoinRequest.NONE  # it has come, and there is no vacancy for it
    session.refresh(ctx, group, member, now_ms)
    ctx.reply(command.reply_handle, join_response(group, member))


def heartbeat(ctx: Context, group: Group, request: HeartbeatRequest, member: Member, now_ms: int) -> ErrorCode:
    """In an old generation it has to join the new one, in which it remains a standby."""
    session.refresh(ctx, group, member, now_ms)
    if request.generation_id != group.generation or member.rejoin is RejoinRequest.REQUESTED:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return DISPATCH[RequestKind.HEARTBEAT_STANDBY].rejection(group.state)


def sync(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    session.refresh(ctx, group, member, now_ms)
    if command.request.generation_id != group.generation:
        ctx.reply(command.reply_handle, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    row = DISPATCH[RequestKind.SYNC_STANDBY]
    if row[group.state] is Outcome.EMPTY_ASSIGNMENT:
        ctx.reply(command.reply_handle, assignment_response(group, EMPTY_ASSIGNMENT, with_epoch=command.has_tags))
    else:
        ctx.reply(command.reply_handle, sync_error(row.error(group.state)))


# -- registered members ------------------------------------------------------------------------------------------------


def group_reloaded(group: Group) -> None:
    registered = group.extensions.registered
    group.ext.reloaded_registered_count = sum(member.instance_id in registered for member in group.members)


def missing_registered(group: Group) -> list[str]:
    """The registered instance ids that have not joined."""
    awaits_registered = group.join_phase is JoinPhase.AWAITING_REGISTERED
    registered = group.extensions.registered
    members = ((instance_id, group.members.static_member(instance_id)) for instance_id in registered)
    return [
        instance_id
        for instance_id, member in members
        if member is None or (member.disconnected and (member.role is Role.STANDBY or awaits_registered))
    ]


def is_last_registered(group: Group, instance_id: str | None) -> bool:
    """Whether this registered instance id is the only one missing, so that the group can admit all of them."""
    few_missing = _registered_at_most(group) + 1 >= len(group.extensions.registered)
    return group.state is STABLE and few_missing and missing_registered(group) == [instance_id]


def all_registered_present(group: Group) -> bool:
    return _registered_at_most(group) >= len(group.extensions.registered) and not missing_registered(group)


def _registered_at_most(group: Group) -> int:
    """An upper bound for the registered members that are present, without looking at each of them for every join.

    They are standbys or their joins are awaited; only restored members may have an assignment.
    """
    awaited = group.members.awaiting_join_count if group.state is PREPARING else 0
    return len(group.members.standbys) + awaited + group.ext.reloaded_registered_count


# -- standbys and rebalances -------------------------------------------------------------------------------------------


def promote_standbys(group: Group, *, also_disconnected: bool = False, replace_all: bool = False) -> None:
    """A rebalance starts: standbys take part in it as far as there are free slots, the registered ones first.

    If all members are disconnected, or with `replace_all`, then as if there were none: members that do not join cannot
    form a generation.
    """
    standbys = [member for member in group.members.standbys.values() if also_disconnected or not member.disconnected]
    standbys.sort(key=attrgetter("join_order"))
    registered = group.extensions.registered
    if registered:
        standbys.sort(key=lambda member: member.instance_id not in registered)
    free = free_slots(group)
    if free is not None and (replace_all or all(member.disconnected for member in group.members.by_id.values())):
        free = group.extensions.target_size
    for member in standbys[:free]:
        group.members.promote(member)
    reopen_joins(group)


def over_target(group: Group) -> list[Member]:
    """The join phase completes: the new members past the target size, and promoted ones that hung up.

    A member that has joined has the assignment rather than one that has not, which would not read its partitions.
    """
    target = group.extensions.target_size
    too_many = len(group.members.by_id) - target if target != NO_TARGET else 0
    count = max(too_many, sum(map(_hung_up_before_join, group.members)))
    if count <= 0 or not allows_standbys(group, group.members.select_protocol()):
        return []
    candidates = [member for member in group.members.by_id.values() if member.role is not Role.ACTIVE]
    candidates.sort(key=lambda member: (member.awaiting_join is None, _hung_up_before_join(member), member.join_order))
    return candidates[-count:]


def _hung_up_before_join(member: Member) -> bool:
    return member.role is Role.PROMOTED and member.disconnected and member.awaiting_join is None
