"""Resync (Kafka wiki, Client-side Assignment Proposal, step 4a): a topic grew, and the leader extends assignments.

The leader sends a SyncGroup with the epoch it worked from and the new assignments of the members that get more
partitions. If no partition would change its owner by it, they are stored and those members are asked to rejoin.
Otherwise the leader gets an error and rejoins, and the growth is an ordinary rebalance.
"""

from __future__ import annotations

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.commands import Sync
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.classic.responses import sync_error, sync_response
from holdfast.coordinator.events.causes import Cause, CauseCode, ResyncRejection, resync_rejected
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.events.partitions_moved import Partitions, partitions_of
from holdfast.coordinator.extensions import targeted_rejoin
from holdfast.coordinator.extensions.record import in_generation_change
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey


def resync(ctx: Context, group: Group, command: Sync, leader: Member, now_ms: int) -> None:
    assignments = {given.member_id: given.assignment for given in command.request.assignments}
    rejected = _rejection(group, command, leader, assignments)
    if rejected is not None:
        ctx.emit(EventKind.RESYNCED, group, now_ms, member=leader, cause=rejected, moved_partitions=0)
        ctx.reply(command.reply_handle, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    members = group.member_records(assignments)
    value = group.metadata_record(members, group.leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms
    grown = [member for member in group.members if member.id in assignments]

    def stored(now_ms: int) -> None:
        added = sum(len(partitions_of(assignments[m.id]) - partitions_of(m.assignment)) for m in grown)
        previous, group.last_event_epoch = group.last_event_epoch, group.epoch
        cause = Cause(CauseCode.RESYNC_APPLIED, count=len(grown), total=len(group.members), detail=str(added))
        ctx.emit(
            EventKind.RESYNCED,
            group,
            now_ms,
            member=leader,
            cause=cause,
            members=len(group.members),
            previous_epoch=previous,
            moved_partitions=0,
        )
        for member in grown:
            member.assignment = assignments[member.id]
            if member is not leader:
                targeted_rejoin.request_rejoin(ctx, group, member, now_ms, cause=Cause(CauseCode.ASSIGNMENT_GREW))
        session.refresh(ctx, group, leader, now_ms)
        ctx.reply(command.reply_handle, sync_response(group, leader, with_epoch=True))

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.RESYNC_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, member=leader, cause=cause)
        ctx.reply(command.reply_handle, sync_error(code))

    changed = in_generation_change(group, *assignments)
    ctx.append(group, [(GroupMetadataKey(group.id), value), *changed], stored, failed)


def _rejection(group: Group, command: Sync, leader: Member, assignments: dict[str, bytes]) -> Cause | None:
    """Why the assignments cannot change as the leader asks for; None if they can."""
    if leader.id != group.leader_id:
        return resync_rejected(ResyncRejection.NOT_LEADER)
    if group.ext.vacancies or not targeted_rejoin.is_settled(group):
        return resync_rejected(ResyncRejection.GROUP_NOT_SETTLED)
    resync_epoch = command.request.resync_from_epoch
    if resync_epoch != group.epoch:
        return resync_rejected(ResyncRejection.OTHER_EPOCH, resync_epoch=resync_epoch, group_epoch=group.epoch)
    if len(assignments) != len(command.request.assignments) or not all(
        member_id in group.members for member_id in assignments
    ):
        return resync_rejected(ResyncRejection.OTHER_MEMBERS)
    try:
        return _invalid_assignment(group, assignments)
    except WireError as error:
        return resync_rejected(ResyncRejection.UNREADABLE_ASSIGNMENT, error=error)


def _invalid_assignment(group: Group, assignments: dict[str, bytes]) -> Cause | None:
    """No partition may have two owners, nor may one be taken from anybody."""
    held: Partitions = set()
    for member in group.members:
        held |= partitions_of(member.assignment) | targeted_rejoin.owned_partitions(member, group)
    for member in group.members:
        if member.id not in assignments:
            continue
        before, after = partitions_of(member.assignment), partitions_of(assignments[member.id])
        added = after - before
        if not before <= after:
            return resync_rejected(ResyncRejection.PARTITIONS_LOST, member_id=member.id)
        if added & held:
            return resync_rejected(ResyncRejection.PARTITIONS_OWNED, member_id=member.id)
        if not {topic for topic, _ in added} <= (
            targeted_rejoin.subscription_topics(member.protocols, group) or frozenset()
        ):
            return resync_rejected(ResyncRejection.TOPICS_NOT_SUBSCRIBED, member_id=member.id)
        held |= added
    return None
