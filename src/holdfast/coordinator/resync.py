"""Leader resync (the client-side assignment document, step 4a): a topic grew, and the leader adds to the shares.

The group stays as it is: the leader sends a SyncGroup with the epoch it worked from and the new shares of those who get
more. If nothing can go wrong by it, they are stored and those members are called. Otherwise the leader is told to
rejoin, and the growth is an ordinary rebalance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.coordinator import calls, sessions
from holdfast.coordinator.answers import sync_error, synced
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Member
from holdfast.coordinator.moves import Partitions, partitions_of
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey

if TYPE_CHECKING:
    from holdfast.coordinator.syncing import Sync


def resync(ctx: Context, group: Group, command: Sync, leader: Member, now_ms: int) -> None:
    shares = {given.member_id: given.assignment for given in command.request.assignments}
    refusal = _refusal(group, command, leader, shares)
    if refusal is not None:
        cause = f"the leader is to rejoin: {refusal}"
        ctx.tell(EventKind.RESYNCED, group, now_ms, member=leader, cause=cause, moved_partitions=0)
        ctx.reply(command.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    members = group.member_records(shares)
    value = group.metadata_record(members, group.leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms
    grown = [member for member in group.roster if member.id in shares]

    def stored(now_ms: int) -> None:
        added = sum(len(partitions_of(shares[m.id]) - partitions_of(m.assignment)) for m in grown)
        previous, group.told_epoch = group.told_epoch, group.epoch
        cause = f"{added} partitions were added to {len(grown)} of {len(group.roster)} shares"
        ctx.tell(
            EventKind.RESYNCED,
            group,
            now_ms,
            member=leader,
            cause=cause,
            members=len(group.roster),
            previous_epoch=previous,
            moved_partitions=0,
        )
        for member in grown:
            member.assignment = shares[member.id]
            if member is not leader:
                calls.call(ctx, group, member, now_ms, cause="its share grew")
        sessions.refresh(ctx, group, leader, now_ms)
        ctx.reply(command.ticket, synced(group, leader, with_epoch=True))

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = f"a resync was not stored: {code.name}"
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, member=leader, cause=cause)
        ctx.reply(command.ticket, sync_error(code))

    changed = group.quiet_change(*shares)
    ctx.store(group, [(GroupMetadataKey(group.id), value), *changed], stored, failed)


def _refusal(group: Group, command: Sync, leader: Member, shares: dict[str, bytes]) -> str | None:
    """Why the shares cannot change as the leader wants it; None if they can."""
    if leader.id != group.leader_id:
        return "it does not lead"
    if group.places or not calls.is_settled(group):
        return "the group is not settled"
    if command.request.resync_from_epoch != group.epoch:
        return f"it worked from epoch {command.request.resync_from_epoch}, the group is in {group.epoch}"
    if len(shares) != len(command.request.assignments) or not all(member_id in group.roster for member_id in shares):
        return "the members are others"
    try:
        return _wrong_share(group, shares)
    except WireError as error:
        return f"a share cannot be read: {error}"


def _wrong_share(group: Group, shares: dict[str, bytes]) -> str | None:
    """No partition may have two owners, nor may one be taken from anybody."""
    held: Partitions = set()
    for member in group.roster:
        held |= partitions_of(member.assignment) | calls.claims(member, group)
    for member in group.roster:
        if member.id not in shares:
            continue
        before, after = partitions_of(member.assignment), partitions_of(shares[member.id])
        added = after - before
        if not before <= after:
            return f"the share of {member.id} would lose partitions"
        if added & held:
            return f"partitions added to the share of {member.id} are somebody's"
        if not {topic for topic, _ in added} <= (calls.topics_of(member.protocols, group) or frozenset()):
            return f"{member.id} does not subscribe to what is added to its share"
        held |= added
    return None
