"""SyncGroup: the leader brings everybody's assignment, the others come for theirs."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.coordinator import failures, growth, intake, presence, rebalance, resync, seats, sessions
from holdfast.coordinator.answers import sync_error, synced
from holdfast.coordinator.context import Context
from holdfast.coordinator.effects import Record
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.identity import identify
from holdfast.coordinator.joining import tell_fenced
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Client, Member, Parked
from holdfast.coordinator.moves import changed_owner, moved_partitions
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

    @property
    def has_tags(self) -> bool:
        """Whether it was asked in Holdfast's own tagged fields, so that it may be answered in them."""
        request = self.request
        return request.wants_epoch or request.failure is not None or request.resync_from_epoch >= 0


def sync(ctx: Context, group: Group, command: Sync, now_ms: int) -> None:
    """A sync whose group id is good."""
    member = _checked(ctx, group, command, now_ms)
    if isinstance(member, ErrorCode):
        ctx.reply(command.ticket, sync_error(member))
        return
    returned = presence.heard(group, member, command.client)
    if member.waits:
        seats.sync(ctx, group, command, member, now_ms)
        if returned:
            intake.review(ctx, group, now_ms)
        return
    answer = ANSWERS[Request.SYNC][group.state]
    if answer is Answer.ASSIGNMENT and command.request.resync_from_epoch >= 0:
        resync.resync(ctx, group, command, member, now_ms)
    elif answer is Answer.ASSIGNMENT:
        rebalance.synced(group, member.id)
        if member.call is Call.JOINED:
            rebalance.end_call(member)
        sessions.refresh(ctx, group, member, now_ms)
        ctx.reply(command.ticket, synced(group, member, with_epoch=command.has_tags))
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
        # Who waits has lost nothing: it is told to join, before anybody asks under which protocol it waited.
        return member if member.waits else ErrorCode.ILLEGAL_GENERATION
    differs_in_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    differs_in_name = request.protocol_name is not None and request.protocol_name != group.stored.protocol_name
    if differs_in_type or differs_in_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return member


def _park(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    failure = command.request.failure
    if failure is not None and member.id == group.leader_id:
        failures.report(ctx, group, command, member, failure, now_ms)
        return
    parked = Parked(command.ticket, command.api_version, command.has_tags)
    superseded, member.parked_sync = member.parked_sync, parked
    if superseded is not None:
        ctx.reply(superseded.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    rebalance.synced(group, member.id)
    if member.id == group.leader_id:
        _assign(ctx, group, command.request, member, now_ms)


def _assign(ctx: Context, group: Group, request: SyncGroupRequest, leader: Member, now_ms: int) -> None:
    """Stores what the leader decided, then hands it out."""
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
        group.failed_leaders.clear()
        group.failed_rounds = 0
        previous, group.told_epoch = group.told_epoch, group.epoch
        for member in group.roster:
            member.assignment = assignments[member.id]
        moved = moved_partitions(before, assignments) if group.protocol_type == CONSUMER else None
        changed = moved if moved is None or not group.gone else changed_owner(before, assignments, _left_by_gone(group))
        group.gone.clear()
        ctx.tell(
            EventKind.ASSIGNED,
            group,
            now_ms,
            member=leader,
            cause=f"protocol {group.stored.protocol_name}",
            members=len(group.roster),
            stood_still_ms=max(0, now_ms - group.rebalance_began_ms),
            moved_partitions=moved,
            changed_owner=changed,
            previous_epoch=previous,
        )
        for member in group.roster:
            parked = member.parked_sync
            if parked is not None:
                ctx.reply(parked.ticket, synced(group, member, with_epoch=parked.has_tags))
                member.parked_sync = None
                sessions.refresh(ctx, group, member, now_ms)
        intake.review(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = f"the assignment was not stored: {code.name}"
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, member=leader, cause=cause)
        rebalance.release_syncs(ctx, group, code, now_ms)
        if group.state is COMPLETING:
            rebalance.prepare(ctx, group, now_ms, cause="the assignment could not be stored", member=leader)

    remembered = group.assigned(growth.left_out(ctx, group, leader, members))
    records: list[Record] = [(GroupMetadataKey(group.id), value), (GenerationKey(group.id), None), *remembered]
    ctx.store(group, records, stored, failed)


def _left_by_gone(group: Group) -> dict[str, bytes]:
    """The shares of members that went, by their ids; of a static member that is back, by the one that it has now."""
    holders = ((member, group.roster.holder_of(member.instance_id)) for member in group.gone)
    return {(member if holder is None else holder).id: member.assignment for member, holder in holders}
