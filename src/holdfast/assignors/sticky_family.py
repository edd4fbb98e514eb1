"""The common part of sticky and cooperative-sticky: everything but the members' claims and the time at which a
partition moves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.constrained import assign_equally
from holdfast.assignors.general import assign_unequally
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.java_order import in_order
from holdfast.assignors.owned_claims import Claim, Ownership, resolve
from holdfast.assignors.partition_index import IndexedPartitions, Numbers, PartitionIndex, stable_order
from holdfast.assignors.sticky_racks import Racks


class StickyFamily(Assignor):
    """As balanced as subscriptions allow, and of all such assignments one that moves the fewest partitions."""

    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        if not subscriptions:
            return {}
        members = in_order(subscriptions)
        topics = [subscriptions[member].topics for member in members]
        equal = _all_equal(topics)
        subscribed = set(topics[0] if equal else chain.from_iterable(topics))
        existing = {topic: count for topic, count in cluster.partitions.items() if topic in subscribed and count > 0}
        numbering = PartitionIndex(existing)

        claims = self.claims((subscriptions[member] for member in members), numbering)
        ownership = resolve(numbering.total, claims)
        if equal or not existing:
            racks = Racks.where_they_matter(cluster, numbering, [subscriptions[member].rack for member in members])
            assigned = assign_equally(numbering, len(members), ownership.owner, racks)
        else:
            assigned = assign_unequally(numbering, _eligible(numbering, topics), ownership.owner)
        return _by_member(numbering, members, self.hand_over(assigned, ownership))

    @abstractmethod
    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: PartitionIndex) -> Iterable[Claim]:
        """The claims of the members, by their number in this order."""

    def hand_over(self, assigned: Numbers, ownership: Ownership) -> Numbers:  # noqa: ARG002
        """The part of the new assignment that is sent now. Eager members have already revoked all partitions."""
        return assigned


def _all_equal(topics: list[Collection[str]]) -> bool:
    first = topics[0]
    as_set = set(first)
    # The lists are usually equal, and comparing them is much faster than creating sets.
    return all(others == first or set(others) == as_set for others in topics)


def _eligible(numbering: PartitionIndex, topics: list[Collection[str]]) -> NDArray[np.bool_]:
    eligible = np.zeros((len(numbering.topics), len(topics)), dtype=np.bool_)
    for member, subscribed in enumerate(topics):
        eligible[[numbering.place[topic] for topic in subscribed if topic in numbering.place], member] = True
    return eligible


def _by_member(numbering: PartitionIndex, members: list[str], assigned: Numbers) -> dict[str, MemberAssignment]:
    lengths = np.bincount(assigned + 1, minlength=len(members) + 1)
    numbers = stable_order(assigned, len(members)).astype(np.int32)
    ends = np.cumsum(lengths).tolist()
    # Partitions that stay UNASSIGNED in this round are before those of the first member.
    return {
        member: MemberAssignment(IndexedPartitions(numbering, numbers[start:end]))
        for member, start, end in zip(members, ends, ends[1:], strict=False)
    }
