"""Racks in a sticky group whose members have the same subscription (KIP-881): as near as quotas allow.

A partition is near to a member if one of its replicas is in the member's rack. A member without a rack keeps all its
partitions, and is never preferred because of a rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.interface import Cluster
from holdfast.assignors.partition_index import UNASSIGNED, Numbers, PartitionIndex


class Racks:
    """The racks of the members and of each partition's replicas."""

    def __init__(self, of_member: Sequence[str | None], of_partition: Sequence[frozenset[str]]) -> None:
        self.of_member = of_member
        self.of_partition = of_partition

    @classmethod
    def where_they_matter(
        cls, cluster: Cluster, numbering: PartitionIndex, members: Sequence[str | None]
    ) -> Racks | None:
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
        """The owners of partitions that are near to them. Owners without a rack keep all partitions."""
        kept = owner.copy()
        for number in np.flatnonzero(owner != UNASSIGNED).tolist():
            rack = self.of_member[owner[number]]
            if rack is not None and rack not in self.of_partition[number]:
                kept[number] = UNASSIGNED
        return kept

    def fewest_near_first(self, numbers: NDArray[np.int64]) -> list[int]:
        members_in = Counter(rack for rack in self.of_member if rack is not None)
        return sorted(numbers.tolist(), key=lambda number: sum(members_in[rack] for rack in self.of_partition[number]))

    def first_near(self, number: int, members: Sequence[int], start: int) -> int | None:
        """The position of the first near member in ``members``, searching cyclically from ``start``."""
        for step in range(len(members)):
            place = (start + step) % len(members)
            if self.of_member[members[place]] in self.of_partition[number]:
                return place
        return None


class NearDistribution:
    """The first distribution: to near members only, first those below the smaller quota, then those at it."""

    def __init__(
        self, racks: Racks, assigned: Numbers, has: NDArray[np.int64], smaller: int, larger_quotas: int
    ) -> None:
        self._racks = racks
        self._assigned = assigned
        self._has = has
        self._smaller = smaller
        self._larger_quotas = larger_quotas
        self._below: list[int] = np.flatnonzero(has < smaller).tolist()
        self._next_index = 0
        self._may_have_more: list[int] = []

    def distribute(
        self, left: NDArray[np.int64], may_have_more: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """The remaining partitions, the members that may have a larger quota, and how many larger quotas are left."""
        self._may_have_more = may_have_more.tolist() if self._larger_quotas else []
        far = []
        for number in self._racks.fewest_near_first(left):
            member = self._to_one_below(number)
            if member is None:
                member = self._as_larger_quota(number)
            if member is None:
                far.append(number)
            else:
                self._assigned[number] = member
                self._has[member] += 1
        return np.array(far, np.int64), np.array(self._may_have_more, np.int64), self._larger_quotas

    def _to_one_below(self, number: int) -> int | None:
        place = self._racks.first_near(number, self._below, self._next_index)
        if place is None:
            return None
        member = self._below[place]
        if self._has[member] + 1 < self._smaller:
            place += 1
        else:
            del self._below[place]
            if self._larger_quotas:
                self._may_have_more.append(member)
        self._next_index = place % len(self._below) if self._below else 0
        return member

    def _as_larger_quota(self, number: int) -> int | None:
        place = self._racks.first_near(number, self._may_have_more, 0)
        if place is None:
            return None
        member = self._may_have_more.pop(place)
        self._larger_quotas -= 1
        if not self._larger_quotas:
            self._may_have_more = []
        return member
