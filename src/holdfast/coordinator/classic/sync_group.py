"""SyncGroup: the leader sends the assignment of every member, and every member receives its own."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.coordinator.classic import rebalance, session
from holdfast.coordinator.classic.commands import Sync
from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, PendingResponse, RejoinRequest, Role
from holdfast.coordinator.classic.responses import sync_error, sync_response
from holdfast.coordinator.classic.state_machine import (
    COMPLETING,
    DISPATCH,
    STABLE,
    Outcome,
    RequestKind,
)
from holdfast.coordinator.classic.sync_barrier import fail_pending_syncs, remove_pending_sync
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.events.partitions_moved import changed_owner, moved_partitions
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GenerationKey, GroupMetadataKey


def sync(ctx: Context, group: Group, command: Sync, now_ms: int) -> None:
    member = _validate(ctx, group, command, now_ms)
    if not isinstance(member, Member):
        ctx.reply(command.reply_handle, sync_error(member))
        return
    if member.role is Role.STANDBY:
        ctx.hooks.standby_sync(ctx, group, command, member, now_ms)
        return
    session.seen(ctx, group, member, command.client)
    if command.has_tags and ctx.hooks.on_sync(ctx, group, command, member, now_ms):
        return
    row = DISPATCH[RequestKind.SYNC]
    match row[group.state]:
        case Outcome.ASSIGNMENT:
            remove_pending_sync(ctx, group, member.id)
            if member.rejoin is RejoinRequest.REJOINED:
                ctx.hooks.synced(ctx, group, member)
            session.refresh(ctx, group, member, now_ms)
            ctx.reply(command.reply_handle, sync_response(group, member, with_epoch=command.has_tags))
        case Outcome.AWAIT:
            _await_assignment(ctx, group, command, member, now_ms)
        case _:
            ctx.reply(command.reply_handle, sync_error(row.error(group.state)))


def _validate(ctx: Context, group: Group, command: Sync, now_ms: int) -> Member | ErrorCode:
    """Identity before generation before protocol."""
    request = command.request
    member = validate_member(ctx, group, request.member_id, request.group_instance_id, command.client, now_ms)
    if not isinstance(member, Member):
        return DISPATCH[RequestKind.SYNC].error_without_members(group.state) or member
    if request.generation_id != group.generation:
        # A standby of an old generation has lost nothing: it has to join, whatever the protocol was then.
        return member if member.role is Role.STANDBY else ErrorCode.ILLEGAL_GENERATION
    differs_in_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    differs_in_name = request.protocol_name is not None and request.protocol_name != group.stored.protocol_name
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if differs_in_type or differs_in_name else member


def _await_assignment(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    pending = PendingResponse(command.reply_handle, command.api_version, command.has_tags)
    superseded, member.awaiting_sync_response = member.awaiting_sync_response, pending
    if superseded is not None:
        ctx.reply(superseded.reply_handle, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    remove_pending_sync(ctx, group, member.id)
    if member.id == group.leader_id:
        _store_assignment(ctx, group, command.request, member, now_ms)


def _store_assignment(ctx: Context, group: Group, request: SyncGroupRequest, leader: Member, now_ms: int) -> None:
    """Stores the leader's assignment, then delivers it."""
    given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
    # For a member that the leader forgot: zero bytes, as Kafka sends them, make Python's clients raise.
    nothing = EMPTY_ASSIGNMENT if group.protocol_type == CONSUMER else b""
    assignments = {member.id: given.get(member.id) or nothing for member in group.members}
    before = {member.id: member.assignment for member in group.members}
    members = [group.member_record(member, assignments[member.id]) for member in group.members]
    value = group.metadata_record(members, group.leader_id, now_ms)

    def stored(now_ms: int) -> None:
        group.transition_to(STABLE)
        group.reloaded_awaiting_sync = group.assignments_cleared = False
        group.failed_leaders.clear()
        previous, group.last_event_epoch = group.last_event_epoch, group.epoch
        for member in group.members:
            member.assignment = assignments[member.id]
        _emit_assigned(ctx, group, leader, before, previous, now_ms)
        for member in group.members:
            pending = member.awaiting_sync_response
            if pending is not None:
                ctx.reply(pending.reply_handle, sync_response(group, member, with_epoch=pending.has_tags))
                member.awaiting_sync_response = None
                session.refresh(ctx, group, member, now_ms)
        ctx.hooks.after_stable(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.ASSIGNMENT_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, member=leader, cause=cause)
        fail_pending_syncs(ctx, group, code, now_ms)
        if group.state is COMPLETING:
            rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=leader)

    records: list[Record] = [(GroupMetadataKey(group.id), value), (GenerationKey(group.id), None)]
    records += ctx.hooks.assignment_records(ctx, group, leader, members)
    ctx.append(group, records, stored, failed)


def _emit_assigned(
    ctx: Context, group: Group, leader: Member, before: Mapping[str, bytes], previous_epoch: int, now_ms: int
) -> None:
    after = {member.id: member.assignment for member in group.members}
    moved = changed = moved_partitions(before, after) if group.protocol_type == CONSUMER else None
    if moved is not None and group.departed_members:
        changed = changed_owner(before, after, _assignments_of_departed(group))
    group.departed_members.clear()
    ctx.emit(
        EventKind.ASSIGNED,
        group,
        now_ms,
        member=leader,
        cause=Cause(CauseCode.PROTOCOL_SELECTED, detail=group.stored.protocol_name),
        members=len(group.members),
        unassigned_ms=max(0, now_ms - group.rebalance_began_ms),
        moved_partitions=moved,
        changed_owner=changed,
        previous_epoch=previous_epoch,
    )


def _assignments_of_departed(group: Group) -> dict[str, bytes]:
    """By member id; of a static member that is back, by the id that it has now."""
    holders = ((member, group.members.static_member(member.instance_id)) for member in group.departed_members)
    return {(member if holder is None else holder).id: member.assignment for member, holder in holders}
