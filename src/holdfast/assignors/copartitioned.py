"""Co-partitioned: topics that are joined with each other, and some other strategy for the rest.

    CopartitionedAssignor()
    CopartitionedAssignor(groups=[["orders", "payments"], ["clicks", "views"]], rest="sticky")

Without groups, as by the name `copartitioned`, topics with the same number of partitions form a group if a member
subscribes to all of them. The largest set of topics that any member has comes first, then the largest of what is left;
of two equally large ones, that of more members. So each topic is in one group at most, and each group has members that
subscribe to all of it. (Kafka's `range` keeps topics together only if all their subscribers are the same.)

Partition i of every topic of a group goes to one and the same member, so that it has in its own hands whatever has the
same key. The partitions with one number are dealt together, one number after the other around the members; the next
group goes on where the last one ended, so that nobody always gets the larger share.

Where the topics of a group do not quite fit together:

- **Unequal counts.** Number i of every topic that has a number i still goes to one member; the numbers that only the
  longer topics have are dealt on. Nobody's share of any one topic is larger by more than one than another's. (That
  the same key is in the same number of both is then for the producers to see to.)
- **Members with only a part of the topics.** As long as somebody subscribes to all topics of the group, only those who
  do get any of it: a share in `orders` without the same share in `payments` would be of no use to anybody. If
  nobody does, then topics with the same subscribers are still dealt together, and the others each by itself.
- **A topic that does not exist, or to which nobody subscribes,** is left out; the others are joined without it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TypeVar

from holdfast.assignors.dealing import Shares, Table, deal
from holdfast.assignors.interface import (
    Assignor,
    Cluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from holdfast.assignors.listening import tell
from holdfast.assignors.ordering import subscribers, utf16

Value = TypeVar("Value")


class CopartitionedAssignor(Assignor):
    """Joined topics together, the others by `rest`. The leader's groups count: configure all members alike."""

    name = "holdfast-copartitioned"

    def __init__(self, groups: Iterable[Iterable[str]] | None = None, rest: str | Assignor = "range") -> None:
        self.groups = None if groups is None else _groups(groups)
        """None: whichever topics go together by what the members subscribe to."""
        self.rest = _strategy(rest)
        # What a joint share gives up and takes over would have to wait for the other hand-overs.
        if self.rest.protocol is not RebalanceProtocol.EAGER:
            raise ValueError(f"the rest of a co-partitioned assignor must be eager, which {self.rest.name!r} is not")
        self.several_owners = self.rest.several_owners
        self.may_leave_out = self.rest.may_leave_out

    # Which topics are joined by their subscribers is known to the leader alone: without groups the rest hears of all.

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        joined = _topics_of(self.groups or ())
        return self.rest.subscription_user_data([topic for topic in topics if topic not in joined])

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        of_the_rest = _without(_topics_of(self.groups or ()), assignment.partitions)
        tell(self.rest, replace(assignment, partitions=of_the_rest), generation)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        topics = subscribers(cluster, subscriptions)
        groups = _shared_topics(cluster, topics) if self.groups is None else self.groups
        rest = self._assign_rest(cluster, subscriptions, _topics_of(groups))
        shares: Shares = {member: dict(rest[member].partitions) for member in subscriptions}
        table = Table(subscriptions)
        for group in groups:
            for joined, members in _deals({topic: topics[topic] for topic in group if topic in topics}):
                _deal_together(cluster, joined, members, table, shares)
        return {member: replace(rest[member], partitions=share) for member, share in shares.items()}

    def _assign_rest(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription], joined: frozenset[str]
    ) -> Mapping[str, MemberAssignment]:
        told = {
            member: replace(one, topics=[topic for topic in one.topics if topic not in joined])
            for member, one in subscriptions.items()
        }
        return self.rest.assign(replace(cluster, partitions=_without(joined, cluster.partitions)), told)


def _deal_together(cluster: Cluster, joined: list[str], members: list[str], table: Table, shares: Shares) -> None:
    around = table.around(members)
    for topic in joined:
        deal(topic, cluster.partitions[topic], around, shares)
    longest = max(cluster.partitions[topic] for topic in joined)
    table.last_was(around[(longest - 1) % len(around)])


def _topics_of(groups: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset(topic for group in groups for topic in group)


def _without(joined: frozenset[str], by_topic: Mapping[str, Value]) -> dict[str, Value]:
    return {topic: value for topic, value in by_topic.items() if topic not in joined}


def _shared_topics(cluster: Cluster, topics: Mapping[str, list[str]]) -> list[tuple[str, ...]]:
    """The groups that the subscriptions make, by the rule at the top. Topics without a partner are in none."""
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


def _deals(topics: Mapping[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """Which topics of a group are dealt together, and to whom."""
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
    """Each topic in one group at most: it cannot be kept together with two different ones."""
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
    # Here, not above: the registry knows this module too.
    from holdfast.assignors.registry import assignor

    return assignor(rest)
