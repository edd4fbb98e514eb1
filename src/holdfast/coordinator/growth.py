"""Topics that grow, and the partitions that nobody would notice.

It is the leader's business to watch the topics and to assign what is added to them. Three kinds of leaders do not:

- one that took over an assignment (KIP-814, or a standby) takes the topics as it finds them for what was assigned;
- one that was replaced and cannot be told to skip the assignment (`leadership`) does not know that it leads;
- one that was called to join again within its generation is in the place of the first.

So when a leader is about to become one of these, or is found to be one after a restart of the broker, the group
rebalances if a subscribed topic has grown since its shares were made. Whether it has follows from two facts that are
both stored: the shares, and the size of the topic. A flag that is set when a topic grows would be lost with the process
that set it, and there is no moment at which it could be stored together with the size: docs/decisions/0015. So this is
one of the places that may look inside assignments, to be more careful.

A partition in nobody's share is not always a new one: an assignor may leave some out on purpose, and such a group must
not rebalance with every restart. Whatever has no owner although the leader knew of it when it assigned is therefore
remembered with the assignment, as the number of partitions that it knew of. Most groups leave nothing out and have
nothing to remember. What a leader knew is not in its SyncGroup; `TopicSizes.surely_known` says what it knew at least,
and where that is too little, a group rebalances once too often, and knows then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.coordinator import rebalance
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.members import Member
from holdfast.coordinator.states import STABLE
from holdfast.wire.consumer_protocol import decode_assignment, decode_subscription, subscribed_topics
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import MemberMetadata


def has_grown(ctx: Context, group: Group) -> bool:
    """Whether a subscribed topic has partitions that are nobody's, and that no leader left out."""
    if group.protocol_type != CONSUMER or group.stored.awaits_sync:
        return False
    return bool(_unassigned(ctx, group.stored.members, group.left_out))


def left_out(ctx: Context, group: Group, leader: Member, members: Sequence[MemberMetadata]) -> dict[str, int]:
    """The topics of which some partitions are in none of these shares, with how many the leader knew of."""
    # After the broker's restart an assignment may come that was made before, from whatever the topics were then.
    if group.protocol_type != CONSUMER or group.restored_in_sync:
        return {}
    known = {
        topic: ctx.topics.surely_known(topic, leader.appeared_ms) for topic in sorted(_unassigned(ctx, members, {}))
    }
    return {topic: size for topic, size in known.items() if size > 0}


def topic_grew(ctx: Context, group: Group, topic: str, now_ms: int) -> None:
    """If nobody watches the topics, we do."""
    unwatched = group.leader_unaware or (group.leader_id or "") not in group.roster
    if group.state is STABLE and unwatched and topic in (group.topics() or ()):
        cause = f"topic {topic} grew and the leader does not know that it leads"
        ctx.when_free(group, lambda later_ms: see_to_it(ctx, group, later_ms, cause=cause), now_ms)


def review_after_loading(ctx: Context, group: Group, now_ms: int) -> None:
    """With the first heartbeat, not for all groups at once while they are loaded: it takes a look at every share."""
    group.growth_unreviewed = False
    if group.leader_unaware:
        cause = "a topic had grown before the broker restarted, and the leader may not know that it leads"
        see_to_it(ctx, group, now_ms, cause=cause)


def see_to_it(ctx: Context, group: Group, now_ms: int, *, cause: str) -> None:
    """A rebalance, if something has been added that the leader will not notice."""
    if group.state is STABLE and has_grown(ctx, group):
        rebalance.prepare(ctx, group, now_ms, cause=cause)


# -- what is whose -----------------------------------------------------------------------------------------------------


def _unassigned(ctx: Context, members: Sequence[MemberMetadata], except_below: Mapping[str, int]) -> set[str]:
    """The topics that these members subscribe to and of which a partition is nobody's, from the given one on."""
    free = {topic: bytearray(b"\1") * ctx.topics.size_of(topic) for topic in _topics(members)}
    for topic, below in except_below.items():
        if topic in free:
            free[topic][:below] = bytes(min(below, len(free[topic])))
    _take(free, ((topic, partitions) for member in members for topic, partitions in _share(member)))
    if any(map(any, free.values())):
        # KIP-429: what somebody is to give up is nobody's for one generation, and its owner will join again for it.
        _take(free, ((topic, partitions) for member in members for topic, partitions in _claims(member)))
    return {topic for topic, partitions in free.items() if any(partitions)}


def _take(free: Mapping[str, bytearray], owned: Iterable[tuple[str, list[int]]]) -> None:
    for topic, partitions in owned:
        of_topic = free.get(topic, b"")
        for partition in partitions:
            if 0 <= partition < len(of_topic):
                free[topic][partition] = 0


def _topics(members: Iterable[MemberMetadata]) -> set[str]:
    """None at all if one of the subscriptions cannot be read: nobody can say then what should be whose."""
    try:
        return {topic for said in {member.subscription for member in members} for topic in subscribed_topics(said)}
    except WireError:
        return set()


def _share(member: MemberMetadata) -> list[tuple[str, list[int]]]:
    try:
        assigned = decode_assignment(member.assignment).assigned_partitions
    except WireError:
        return []
    return [(entry.topic, entry.partitions) for entry in assigned]


def _claims(member: MemberMetadata) -> list[tuple[str, list[int]]]:
    try:
        owned = decode_subscription(member.subscription).owned_partitions
    except WireError:
        return []
    return [(entry.topic, entry.partitions) for entry in owned]
