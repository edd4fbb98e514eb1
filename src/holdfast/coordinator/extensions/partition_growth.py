"""Topics that grow, and partitions that no member would notice.

The leader watches the topics and assigns the partitions that are added to them. Three kinds of leaders do not:

- one that took over an assignment (KIP-814, or a standby) takes the topics as it finds them for those assigned;
- one that was replaced and whose client ignores SkipAssignment (`skip_assignment`) does not know that it leads;
- one that was asked to rejoin within its generation is in the position of the first.

So when a leader is about to become one of these, or is found to be one after a restart of the broker, the group
rebalances if a subscribed topic has grown since the assignment was made. Whether it has follows from two facts that are
both stored: the assignments, and the partition count of the topic. A flag that is set when a topic grows would be lost
with the process that set it, and there is no moment at which it could be stored together with the partition count:
docs/decisions/0015. So this is one of the places that read assignments.

A partition without an owner is not always a new one: an assignor may leave some out on purpose, and such a group must
not rebalance with every restart. Partitions without an owner that the leader knew of when it assigned are therefore
stored with the assignment, as the number of partitions that it knew of. Most groups leave nothing out and have nothing
to store. What a leader knew is not in its SyncGroup; `TopicMetadata.partitions_known_since` says what it knew at least.
Where that is too little, a group rebalances once too often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from holdfast.coordinator.classic import rebalance
from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.extensions.record import record_of_unassigned, unassigned_in_generation
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.consumer_protocol import decode_assignment, decode_subscription, subscribed_topics
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import MemberMetadata


def has_unassigned_new_partitions(ctx: Context, group: Group) -> bool:
    """Whether a subscribed topic has partitions without an owner, and no leader left them out."""
    if group.protocol_type != CONSUMER or group.stored.awaits_sync:
        return False
    return bool(_topics_with_unassigned(ctx, group.stored.members, unassigned_in_generation(group)))


def unassigned_on_purpose(
    ctx: Context, group: Group, leader: Member, members: Sequence[MemberMetadata]
) -> dict[str, int]:
    """The topics with partitions in none of these assignments, and how many partitions the leader knew of."""
    # After a restart of the broker an assignment may come that was made before, from the topics as they were then.
    if group.protocol_type != CONSUMER or group.reloaded_awaiting_sync:
        return {}
    known = {
        topic: ctx.topics.partitions_known_since(topic, leader.process_seen_ms)
        for topic in sorted(_topics_with_unassigned(ctx, members, {}))
    }
    return {topic: size for topic, size in known.items() if size > 0}


def assignment_records(
    ctx: Context, group: Group, leader: Member, members: Sequence[MemberMetadata]
) -> Sequence[Record]:
    return record_of_unassigned(group, unassigned_on_purpose(ctx, group, leader, members))


def topic_grew(ctx: Context, group: Group, topic: str, now_ms: int) -> None:
    """If no leader watches the topics, the coordinator does."""
    unwatched = group.leader_not_notified or (group.leader_id or "") not in group.members
    if group.state is STABLE and unwatched and topic in (group.topics() or ()):
        cause = Cause(CauseCode.TOPIC_GREW, detail=topic)
        ctx.run_exclusive(group, partial(rebalance_if_grown, ctx, group, cause), now_ms)


def check_after_reload(ctx: Context, group: Group, now_ms: int) -> None:
    """With the first heartbeat, not for all groups at once while they are loaded: it looks at every assignment."""
    if group.leader_not_notified:
        rebalance_if_grown(ctx, group, Cause(CauseCode.TOPIC_GREW_BEFORE_RELOAD), now_ms)


def rebalance_if_grown(ctx: Context, group: Group, cause: Cause, now_ms: int) -> None:
    """Starts a rebalance if partitions were added that the leader will not notice."""
    if group.state is STABLE and has_unassigned_new_partitions(ctx, group):
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause)


# -- owners ------------------------------------------------------------------------------------------------------------


def _topics_with_unassigned(
    ctx: Context, members: Sequence[MemberMetadata], except_below: Mapping[str, int]
) -> set[str]:
    """The topics that these members subscribe to and that have partitions without an owner, from the given one on."""
    free = {topic: bytearray(b"\1") * ctx.topics.partition_count(topic) for topic in _topics(members)}
    for topic, below in except_below.items():
        if topic in free:
            free[topic][:below] = bytes(min(below, len(free[topic])))
    _mark_owned(free, ((topic, partitions) for member in members for topic, partitions in _assigned(member)))
    if any(map(any, free.values())):
        # KIP-429: a partition that is to be revoked has no owner for one generation; its former owner will rejoin for
        # it.
        _mark_owned(free, ((topic, partitions) for member in members for topic, partitions in _owned(member)))
    return {topic for topic, partitions in free.items() if any(partitions)}


def _mark_owned(free: Mapping[str, bytearray], owned: Iterable[tuple[str, list[int]]]) -> None:
    for topic, partitions in owned:
        of_topic = free.get(topic, b"")
        for partition in partitions:
            if 0 <= partition < len(of_topic):
                free[topic][partition] = 0


def _topics(members: Iterable[MemberMetadata]) -> set[str]:
    """None at all if one of the subscriptions cannot be read."""
    try:
        return {topic for data in {member.subscription for member in members} for topic in subscribed_topics(data)}
    except WireError:
        return set()


def _assigned(member: MemberMetadata) -> list[tuple[str, list[int]]]:
    try:
        assigned = decode_assignment(member.assignment).assigned_partitions
    except WireError:
        return []
    return [(entry.topic, entry.partitions) for entry in assigned]


def _owned(member: MemberMetadata) -> list[tuple[str, list[int]]]:
    try:
        owned = decode_subscription(member.subscription).owned_partitions
    except WireError:
        return []
    return [(entry.topic, entry.partitions) for entry in owned]
