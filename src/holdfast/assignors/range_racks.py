"""Range where racks are known (KIP-881): the same quotas, but a member prefers what has a replica in its own rack.

A partition goes by rack only as far as quotas allow it, and co-partitioned topics only together. What is then left over
is dealt in runs, as ever. A member that names no rack is near to everything.
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
    """Whether there is a topic of which some partitions are nearer to some of its members than others."""
    if not cluster.racks or not any(told.rack for told in subscriptions.values()):
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
    shares: dict[str, dict[str, list[int]]],
) -> None:
    """Into `shares`. Topics with the same members and number of partitions are one deal, for all of them alike."""
    together: dict[tuple[tuple[str, ...], int], list[str]] = defaultdict(list)
    for topic, members in topics.items():
        together[tuple(members), cluster.partitions[topic]].append(topic)
    for (of_these, count), joined in together.items():
        deal = _Deal(of_these, count, {member: subscriptions[member].rack or None for member in of_these})
        racks = [_racks(cluster, topic) for topic in joined]
        if len(joined) > 1:
            # Near to all of them, or it does not count: partition i of each stays with partition i of the others.
            deal.one_by_one([frozenset.intersection(*of_one) for of_one in zip(*racks, strict=True)])
        elif _nearer_to_some(cluster, subscriptions, joined[0], of_these):
            deal.in_runs_by_rack(racks[0])
        deal.in_runs()
        for topic in joined:
            for member, numbers in deal.given.items():
                if numbers:
                    shares[member][topic] = sorted(numbers)


class _Deal:
    """Partitions 0 to `count` - 1 and who has which so far. Nobody ever gets more than range would give."""

    def __init__(self, members: Sequence[str], count: int, rack_of: Mapping[str, str | None]) -> None:
        self.given: dict[str, list[int]] = {member: [] for member in members}
        self._rack_of = rack_of
        self._left: dict[int, None] = dict.fromkeys(range(count))
        self._each, self._one_more = divmod(count, len(members))

    def one_by_one(self, near: Sequence[frozenset[str]]) -> None:
        """Each partition to the first member that is near and has room."""
        # Room only shrinks: who is passed over for the want of it is never looked at again.
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

    def in_runs_by_rack(self, racks: Sequence[frozenset[str]]) -> None:
        """Each member takes what is near to it, in order, up to its quota."""
        by_rack: dict[str, list[int]] = defaultdict(list)
        for number, of_one in enumerate(racks):
            for rack in of_one:
                by_rack[rack].append(number)
        # One look through each rack for all its members: what one of them saw is taken, by it or before it.
        near = {rack: (n for n in numbers if n in self._left) for rack, numbers in by_rack.items()}
        self._take_turns(lambda rack: self._left if rack is None else near.get(rack, ()))

    def in_runs(self) -> None:
        """Each member takes what is left, in order, up to its quota."""
        self._take_turns(lambda _: self._left)

    def _take_turns(self, open_to: Callable[[str | None], Iterable[int]]) -> None:
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
