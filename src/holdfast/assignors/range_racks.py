"""Range with racks (KIP-881): the same quotas, but a member prefers partitions with a replica in its own rack.

Partitions are assigned by rack only as far as quotas allow, and co-partitioned topics only together. The remaining
partitions are assigned in runs. A member without a rack is near to all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from holdfast.assignors.interface import Cluster, MemberSubscription

_NOWHERE: Final[frozenset[str]] = frozenset()


def racks_matter(
    cluster: Cluster, subscriptions: Mapping[str, MemberSubscription], topics: Mapping[str, Sequence[str]]
) -> bool:
    """Whether any topic has partitions that are near to some of its members and not to others."""
    if not cluster.racks or not any(subscription.rack for subscription in subscriptions.values()):
        return False
    return any(_nearer_to_some(cluster, subscriptions, topic, members) for topic, members in topics.items())


def _nearer_to_some(
    cluster: Cluster, subscriptions: Mapping[str, MemberSubscription], topic: str, members: Sequence[str]
) -> bool:
    of_members = {rack for member in members if (rack := subscriptions[member].rack)}
    of_partitions = _racks(cluster, topic)
    everywhere = _NOWHERE.union(*of_partitions)
    return not of_members.isdisjoint(everywhere) and any(racks != everywhere for racks in of_partitions)


def _racks(cluster: Cluster, topic: str) -> list[frozenset[str]]:
    known = [frozenset(racks) for racks in islice(cluster.racks.get(topic, ()), cluster.partitions[topic])]
    return known + [_NOWHERE] * (cluster.partitions[topic] - len(known))


def assign_by_rack(
    cluster: Cluster,
    subscriptions: Mapping[str, MemberSubscription],
    topics: Mapping[str, Sequence[str]],
    assignments: dict[str, dict[str, list[int]]],
) -> None:
    """Adds to `assignments`. Topics with the same members and number of partitions are distributed alike."""
    together: dict[tuple[tuple[str, ...], int], list[str]] = defaultdict(list)
    for topic, members in topics.items():
        together[tuple(members), cluster.partitions[topic]].append(topic)
    for (of_these, count), joined in together.items():
        distribution = _Distribution(
            of_these, count, {member: subscriptions[member].rack or None for member in of_these}
        )
        racks = [_racks(cluster, topic) for topic in joined]
        if len(joined) > 1:
            # It must be near in all of these topics, because partition i of each is assigned to the same member.
            distribution.assign_by_common_rack([frozenset.intersection(*of_one) for of_one in zip(*racks, strict=True)])
        elif _nearer_to_some(cluster, subscriptions, joined[0], of_these):
            distribution.assign_runs_by_rack(racks[0])
        distribution.assign_runs()
        for topic in joined:
            for member, numbers in distribution.given.items():
                if numbers:
                    assignments[member][topic] = sorted(numbers)


class _Distribution:
    """Partitions 0 to `count` - 1 and their members so far. No member gets more than in range without racks."""

    def __init__(self, members: Sequence[str], count: int, rack_of: Mapping[str, str | None]) -> None:
        self.given: dict[str, list[int]] = {member: [] for member in members}
        self._rack_of = rack_of
        self._left: dict[int, None] = dict.fromkeys(range(count))
        self._each, self._one_more = divmod(count, len(members))

    def assign_by_common_rack(self, near: Sequence[frozenset[str]]) -> None:
        """Assigns each partition to the first member that is near and below its quota."""
        # A member that has reached its quota is never visited again.
        waiting: dict[str | None, list[tuple[int, str]]] = defaultdict(list)
        for turn, member in reversed(list(enumerate(self.given))):
            waiting[self._rack_of[member]].append((turn, member))
        for number, racks in enumerate(near):
            near_and_free = [first for rack in (None, *racks) if (first := self._next(waiting.get(rack)))]
            if near_and_free:
                _, member = min(near_and_free)
                self._give(member, [number])

    def _next(self, waiting: list[tuple[int, str]] | None) -> tuple[int, str] | None:
        while waiting and not self._room(waiting[-1][1]):
            waiting.pop()
        return waiting[-1] if waiting else None

    def assign_runs_by_rack(self, racks: Sequence[frozenset[str]]) -> None:
        """Each member gets the partitions near to it, in order, up to its quota."""
        by_rack: dict[str, list[int]] = defaultdict(list)
        for number, of_one in enumerate(racks):
            for rack in of_one:
                by_rack[rack].append(number)
        # One pass over each rack is enough for all its members, because every partition that one of them has visited is
        # assigned.
        near = {rack: (n for n in numbers if n in self._left) for rack, numbers in by_rack.items()}
        self._fill_quotas(lambda rack: self._left if rack is None else near.get(rack, ()))

    def assign_runs(self) -> None:
        """Each member gets the remaining partitions, in order, up to its quota."""
        self._fill_quotas(lambda _: self._left)

    def _fill_quotas(self, open_to: Callable[[str | None], Iterable[int]]) -> None:
        for member in self.given:
            if taken := list(islice(open_to(self._rack_of[member]), self._room(member))):
                self._give(member, taken)

    def _room(self, member: str) -> int:
        return max(0, self._each + (self._one_more > 0) - len(self.given[member]))

    def _give(self, member: str, numbers: list[int]) -> None:
        self.given[member] += numbers
        self._one_more -= len(self.given[member]) > self._each
        for number in numbers:
            del self._left[number]
