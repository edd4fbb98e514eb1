"""Dealing around the table: number 0 to the first, number 1 to the next, and on from topic to topic."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from holdfast.assignors.interface import MemberSubscription
from holdfast.assignors.ordering import in_order

Shares = Mapping[str, dict[str, Sequence[int]]]
"""What each member has so far, by topic."""


class Table:
    """Who sits where, and whose turn it is: it goes on from topic to topic, so that nobody is always the first."""

    def __init__(self, subscriptions: Mapping[str, MemberSubscription]) -> None:
        self._seats = {member: seat for seat, member in enumerate(in_order(subscriptions))}
        self._turn = 0

    def around(self, members: list[str]) -> list[str]:
        """These members, as they come from the one whose turn it is; whoever is not among them is passed over."""
        first = bisect_left(members, self._turn, key=self._seats.__getitem__)
        return members[first:] + members[:first]

    def last_was(self, member: str) -> None:
        self._turn = self._seats[member] + 1


def deal(topic: str, count: int, around: Sequence[str], shares: Shares) -> None:
    """Partitions 0 to `count` - 1, one to each: who gets one also gets every further one, once around."""
    numbers = list(range(count))
    for number, member in enumerate(around[:count]):
        shares[member][topic] = numbers[number :: len(around)]
