"""Racks in a sticky group whose members subscribe to the same (KIP-881): as near as shares allow.

A partition is near to a member if one of its replicas is in the member's rack. A member that names no rack keeps
whatever it has, and is never sought out because of its rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.interface import Cluster
from holdfast.assignors.numbering import NOBODY, Numbering, Numbers


class Racks:
    """Where the members are, and where the replicas of each partition."""

    def __init__(self, of_member: Sequence[str | None], of_partition: Sequence[frozenset[str]]) -> None:
        self.of_member = of_member
        self.of_partition = of_partition

    @classmethod
    def where_they_matter(cls, cluster: Cluster, numbering: Numbering, members: Sequence[str | None]) -> Racks | None:
        """None if no rack is near to some partitions and far from others."""
        of_members = {rack for rack in members if rack}
        if not cluster.racks or not of_members:
            return None
        nowhere: frozenset[str] = frozenset()
        of_partition: list[frozenset[str]] = []
        for topic, count in zip(numbering.topics, numbering.counts.tolist(), strict=True):
            known = [frozenset(racks) for racks in cluster.racks.get(topic, ())][:count]
            of_partition += known + [nowhere] * (count - len(known))
        everywhere = nowhere.union(*of_partition)
        if of_members.isdisjoint(everywhere) or all(racks == everywhere for racks in of_partition):
            return None
        return cls([rack or None for rack in members], of_partition)

    def without_far_ones(self, owner: Numbers) -> Numbers:
        """The owners, as far as what they have is near to them or they name no rack."""
        kept = owner.copy()
        for number in np.flatnonzero(owner != NOBODY).tolist():
            rack = self.of_member[owner[number]]
            if rack is not None and rack not in self.of_partition[number]:
                kept[number] = NOBODY
        return kept

    def fewest_near_first(self, numbers: NDArray[np.int64]) -> list[int]:
        members_in = Counter(rack for rack in self.of_member if rack is not None)
        return sorted(numbers.tolist(), key=lambda number: sum(members_in[rack] for rack in self.of_partition[number]))

    def first_near(self, number: int, members: Sequence[int], start: int) -> int | None:
        """Where in ``members``, from ``start`` on and around, somebody is near."""
        for step in range(len(members)):
            place = (start + step) % len(members)
            if self.of_member[members[place]] in self.of_partition[number]:
                return place
        return None


class NearDeal:
    """The deal before the deal: around those below the smaller share, and then those at it, but only to who is near."""

    def __init__(
        self, racks: Racks, assigned: Numbers, has: NDArray[np.int64], smaller: int, larger_shares: int
    ) -> None:
        self._racks = racks
        self._assigned = assigned
        self._has = has
        self._smaller = smaller
        self._larger_shares = larger_shares
        self._below: list[int] = np.flatnonzero(has < smaller).tolist()
        self._turn = 0
        self._may_have_more: list[int] = []

    def deal(
        self, left: NDArray[np.int64], may_have_more: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """What is left, who may then have a larger share, and how many of those there still are."""
        self._may_have_more = may_have_more.tolist() if self._larger_shares else []
        far = []
        for number in self._racks.fewest_near_first(left):
            member = self._to_one_below(number)
            if member is None:
                member = self._as_larger_share(number)
            if member is None:
                far.append(number)
            else:
                self._assigned[number] = member
                self._has[member] += 1
        return np.array(far, np.int64), np.array(self._may_have_more, np.int64), self._larger_shares

    def _to_one_below(self, number: int) -> int | None:
        place = self._racks.first_near(number, self._below, self._turn)
        if place is None:
            return None
        member = self._below[place]
        if self._has[member] + 1 < self._smaller:
            place += 1
        else:
            del self._below[place]
            if self._larger_shares:
                self._may_have_more.append(member)
        self._turn = place % len(self._below) if self._below else 0
        return member

    def _as_larger_share(self, number: int) -> int | None:
        place = self._racks.first_near(number, self._may_have_more, 0)
        if place is None:
            return None
        member = self._may_have_more.pop(place)
        self._larger_shares -= 1
        if not self._larger_shares:
            self._may_have_more = []
        return member
