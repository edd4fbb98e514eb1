"""Co-partitioned: joined topics are assigned together, the others by another strategy.

    CopartitionedAssignor()
    CopartitionedAssignor(groups=[["orders", "payments"], ["clicks", "views"]], rest="sticky")

Without groups, as by the name `copartitioned`, topics with the same number of partitions form a group if a member
subscribes to all of them. The largest set of topics of any member is the first group, then the largest set of the
remaining topics. Of two equally large sets, the one with more members is first. Each topic is therefore in one group at
most, and each group has members that subscribe to all of it. (Kafka's `range` keeps topics together only if all their
subscribers are the same.)

Partition i of every topic of a group goes to the same member, which therefore has all records of a key. Partitions with
the same number are distributed together, in turn to the members. The next group continues where the last one ended, so
that no member always gets the larger quota.

When the topics of a group do not quite match:

- **Unequal counts.** Partition i of every topic that has a partition i still goes to one member; the partitions that
  only the longer topics have are distributed after them. The members' counts differ by one at most in every topic.
  (Producers must ensure that a key has the same partition number in both topics.)
- **Members with only some of the topics.** If any member subscribes to all topics of the group, only such members get
  partitions of it: partitions of `orders` without those of `payments` are useless. If there is no such member, topics
  with the same subscribers are still distributed together, and the others each by itself.
- **A topic that does not exist, or that has no subscriber,** is omitted; the others are joined without it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TypeVar

from holdfast.assignors.callbacks import notify_assignment
from holdfast.assignors.interface import (
    Assignor,
    Cluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from holdfast.assignors.java_order import subscribers, utf16
from holdfast.assignors.registry import assignor
from holdfast.assignors.roundrobin_cursor import Assignments, RoundRobinCursor, distribute

Value = TypeVar("Value")


class CopartitionedAssignor(Assignor):
    """Assigns joined topics together, the others by `rest`. The leader's groups apply, so configure all members
    alike."""

    name = "holdfast-copartitioned"

    def __init__(self, groups: Iterable[Iterable[str]] | None = None, rest: str | Assignor = "range") -> None:
        self.groups = None if groups is None else _groups(groups)
        """None if the groups are derived from the subscriptions."""
        self.rest = _strategy(rest)
        # In a cooperative group a joint assignment would have to wait for the revocations of the rest.
        if self.rest.protocol is not RebalanceProtocol.EAGER:
            raise ValueError(f"the rest of a co-partitioned assignor must be eager, which {self.rest.name!r} is not")
        self.allows_multiple_owners = self.rest.allows_multiple_owners
        self.allows_unassigned = self.rest.allows_unassigned

    # Only the leader knows groups that are derived from the subscriptions, so without groups the rest is notified of
    # all topics.

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        joined = _topics_of(self.groups or ())
        return self.rest.subscription_user_data([topic for topic in topics if topic not in joined])

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        of_the_rest = _without(_topics_of(self.groups or ()), assignment.partitions)
        notify_assignment(self.rest, replace(assignment, partitions=of_the_rest), generation)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        topics = subscribers(cluster, subscriptions)
        groups = _shared_topics(cluster, topics) if self.groups is None else self.groups
        rest = self._assign_rest(cluster, subscriptions, _topics_of(groups))
        assignments: Assignments = {member: dict(rest[member].partitions) for member in subscriptions}
        cursor = RoundRobinCursor(subscriptions)
        for group in groups:
            for joined, members in _distributions({topic: topics[topic] for topic in group if topic in topics}):
                _distribute_together(cluster, joined, members, cursor, assignments)
        return {member: replace(rest[member], partitions=partitions) for member, partitions in assignments.items()}

    def _assign_rest(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription], joined: frozenset[str]
    ) -> Mapping[str, MemberAssignment]:
        remaining = {
            member: replace(one, topics=[topic for topic in one.topics if topic not in joined])
            for member, one in subscriptions.items()
        }
        return self.rest.assign(replace(cluster, partitions=_without(joined, cluster.partitions)), remaining)


def _distribute_together(
    cluster: Cluster, joined: list[str], members: list[str], cursor: RoundRobinCursor, assignments: Assignments
) -> None:
    around = cursor.rotate(members)
    for topic in joined:
        distribute(topic, cluster.partitions[topic], around, assignments)
    longest = max(cluster.partitions[topic] for topic in joined)
    cursor.advance_past(around[(longest - 1) % len(around)])


def _topics_of(groups: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset(topic for group in groups for topic in group)


def _without(joined: frozenset[str], by_topic: Mapping[str, Value]) -> dict[str, Value]:
    return {topic: value for topic, value in by_topic.items() if topic not in joined}


def _shared_topics(cluster: Cluster, topics: Mapping[str, list[str]]) -> list[tuple[str, ...]]:
    """The groups that are derived from the subscriptions (see above). Topics without a partner are in none."""
    by_count: dict[tuple[str, int], list[str]] = defaultdict(list)
    for topic, members in topics.items():  # in the order of their names
        for member in members:
            by_count[member, cluster.partitions[topic]].append(topic)
    alike = Counter(tuple(together) for together in by_count.values())
    ranked = sorted(alike, key=lambda together: [utf16(topic) for topic in together])
    largest = [(-len(together), -alike[together], rank, together) for rank, together in enumerate(ranked)]
    heapify(largest)
    grouped: set[str] = set()
    groups = []
    while largest:
        _, members_less, rank, together = heappop(largest)
        left = tuple(topic for topic in together if topic not in grouped)
        if len(left) < 2:
            continue
        if left != together:
            heappush(largest, (-len(left), members_less, rank, left))
            continue
        groups.append(together)
        grouped.update(together)
    return groups


def _distributions(topics: Mapping[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """Which topics of a group are distributed together, and to which members."""
    if not topics:
        return []
    have_all = set.intersection(*(set(members) for members in topics.values()))
    if have_all:
        return [(list(topics), [member for member in next(iter(topics.values())) if member in have_all])]
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for topic, members in topics.items():
        alike[tuple(members)].append(topic)
    return [(joined, list(members)) for members, joined in alike.items()]


def _groups(groups: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Checks that each topic is in one group at most, because it cannot be joined with two different ones."""
    given = list(groups)
    if any(isinstance(group, str) for group in given):
        raise TypeError(f"groups are lists of topics, such as [['orders', 'payments']], not {given!r}")
    understood = tuple(tuple(group) for group in given)
    topics = [topic for group in understood for topic in group]
    for topic in topics:
        if topics.count(topic) > 1:
            raise ValueError(f"topic {topic!r} is named twice: it can be joined in one group only")
    return understood


def _strategy(rest: str | Assignor) -> Assignor:
    if isinstance(rest, Assignor):
        return rest
    return assignor(rest)
