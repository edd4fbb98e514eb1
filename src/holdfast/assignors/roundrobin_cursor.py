"""Distributes partitions to the members in turn: 0 to the first, 1 to the next, and continues with the next topic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from holdfast.assignors.interface import MemberSubscription
from holdfast.assignors.java_order import in_order

Assignments = Mapping[str, dict[str, Sequence[int]]]
"""The partitions of each member so far, by topic."""


class RoundRobinCursor:
    """The order of the members and the next one. It continues from topic to topic, so that no member is always
    first."""

    def __init__(self, subscriptions: Mapping[str, MemberSubscription]) -> None:
        self._positions = {member: position for position, member in enumerate(in_order(subscriptions))}
        self._next_position = 0

    def rotate(self, members: list[str]) -> list[str]:
        """These members, beginning with the next one, or the first after it."""
        first = bisect_left(members, self._next_position, key=self._positions.__getitem__)
        return members[first:] + members[:first]

    def advance_past(self, member: str) -> None:
        self._next_position = self._positions[member] + 1


def distribute(topic: str, count: int, around: Sequence[str], assignments: Assignments) -> None:
    """Partitions 0 to `count` - 1, one to each member in turn."""
    partitions = list(range(count))
    for position, member in enumerate(around[:count]):
        assignments[member][topic] = partitions[position :: len(around)]
