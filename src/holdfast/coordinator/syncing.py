"""SyncGroup: the leader brings everybody's assignment, the others come for theirs."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.coordinator import rebalance, sessions
from holdfast.coordinator.answers import sync_error, synced
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.identity import identify
from holdfast.coordinator.joining import tell_fenced
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client, Member, Parked
from holdfast.coordinator.moves import moved_partitions
from holdfast.coordinator.states import ANSWERS, COMPLETING, DEAD, STABLE, Answer, Request
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GenerationKey, GroupMetadataKey


@dataclass(frozen=True, slots=True)
class Sync:
    request: SyncGroupRequest
    api_version: int
    client: Client
    ticket: object


def sync(ctx: Context, group: Group, command: Sync, now_ms: int) -> None:
    """A sync whose group id is good."""
    member = _checked(ctx, group, command, now_ms)
    if isinstance(member, ErrorCode):
        ctx.reply(command.ticket, sync_error(member))
        return
    answer = ANSWERS[Request.SYNC][group.state]
    if answer is Answer.ASSIGNMENT:
        rebalance.synced(group, member.id)
        sessions.refresh(ctx, group, member, now_ms)
        ctx.reply(command.ticket, synced(group, member))
    elif answer is Answer.PARK:
        _park(ctx, group, command, member, now_ms)
    else:
        ctx.reply(command.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))


def _checked(ctx: Context, group: Group, command: Sync, now_ms: int) -> Member | ErrorCode:
    """Identity before generation before protocol."""
    request = command.request
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = identify(group.roster, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        if member is ErrorCode.FENCED_INSTANCE_ID:
            tell_fenced(ctx, group, request.member_id, request.group_instance_id, command.client, now_ms)
        return member
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    differs_in_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    differs_in_name = request.protocol_name is not None and request.protocol_name != group.stored.protocol_name
    if differs_in_type or differs_in_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return member


def _park(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    superseded, member.parked_sync = member.parked_sync, Parked(command.ticket, command.api_version)
    if superseded is not None:
        ctx.reply(superseded.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    rebalance.synced(group, member.id)
    if member.id == group.leader_id:
        _assign(ctx, group, command.request, member, now_ms)


def _assign(ctx: Context, group: Group, request: SyncGroupRequest, leader: Member, now_ms: int) -> None:
    """Stores what the leader decided, then hands it out (a seam for what a sync may change)."""
    given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
    # A member that the leader forgot: zero bytes, as Kafka sends them, make Python's clients raise.
    nothing = EMPTY_ASSIGNMENT if group.protocol_type == CONSUMER else b""
    assignments = {member.id: given.get(member.id) or nothing for member in group.roster}
    before = {member.id: member.assignment for member in group.roster}
    members = [group.member_record(member, assignments[member.id]) for member in group.roster]
    value = group.metadata_record(members, group.leader_id, now_ms)

    def stored(now_ms: int) -> None:
        group.enter(STABLE)
        group.restored_in_sync = group.assignments_void = False
        for member in group.roster:
            member.assignment = assignments[member.id]
        moved = moved_partitions(before, assignments) if group.protocol_type == CONSUMER else None
        ctx.tell(
            EventKind.ASSIGNED,
            group,
            now_ms,
            member=leader,
            cause=f"protocol {group.stored.protocol_name}",
            members=len(group.roster),
            stood_still_ms=max(0, now_ms - group.rebalance_began_ms),
            moved_partitions=moved,
        )
        for member in group.roster:
            if member.parked_sync is not None:
                ctx.reply(member.parked_sync.ticket, synced(group, member))
                member.parked_sync = None
                sessions.refresh(ctx, group, member, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = f"the assignment was not stored: {code.name}"
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, member=leader, cause=cause)
        rebalance.release_syncs(ctx, group, code, now_ms)
        if group.state is COMPLETING:
            rebalance.prepare(ctx, group, now_ms, cause="the assignment could not be stored", member=leader)

    ctx.store(group, [(GroupMetadataKey(group.id), value), (GenerationKey(group.id), None)], stored, failed)
