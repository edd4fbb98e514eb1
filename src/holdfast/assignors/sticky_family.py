"""What sticky and cooperative-sticky have in common: all but what members say, and when a partition changes hands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.claims import Claim, Ownership, settle
from holdfast.assignors.constrained import assign_equally
from holdfast.assignors.general import assign_unequally
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.numbering import NumberedPartitions, Numbering, Numbers, stable_order
from holdfast.assignors.ordering import in_order
from holdfast.assignors.sticky_racks import Racks


class StickyFamily(Assignor):
    """As even as subscriptions allow; and of all assignments that are, one that moves the fewest partitions."""

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
        numbering = Numbering(existing)

        claims = self.claims((subscriptions[member] for member in members), numbering)
        ownership = settle(numbering.total, claims)
        if equal or not existing:
            racks = Racks.where_they_matter(cluster, numbering, [subscriptions[member].rack for member in members])
            assigned = assign_equally(numbering, len(members), ownership.owner, racks)
        else:
            assigned = assign_unequally(numbering, _eligible(numbering, topics), ownership.owner)
        return _by_member(numbering, members, self.hand_over(assigned, ownership))

    @abstractmethod
    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: Numbering) -> Iterable[Claim]:
        """What the members say that they own, by their number in this order."""

    def hand_over(self, assigned: Numbers, ownership: Ownership) -> Numbers:  # noqa: ARG002
        """What of the new assignment is given out now; eager members have given up everything already."""
        return assigned


def _all_equal(topics: list[Collection[str]]) -> bool:
    first = topics[0]
    as_set = set(first)
    # Lists that are equal as they stand are the rule, and compared much faster than sets are made.
    return all(others == first or set(others) == as_set for others in topics)


def _eligible(numbering: Numbering, topics: list[Collection[str]]) -> NDArray[np.bool_]:
    eligible = np.zeros((len(numbering.topics), len(topics)), dtype=np.bool_)
    for member, subscribed in enumerate(topics):
        eligible[[numbering.place[topic] for topic in subscribed if topic in numbering.place], member] = True
    return eligible


def _by_member(numbering: Numbering, members: list[str], assigned: Numbers) -> dict[str, MemberAssignment]:
    lengths = np.bincount(assigned + 1, minlength=len(members) + 1)
    numbers = stable_order(assigned, len(members)).astype(np.int32)
    ends = np.cumsum(lengths).tolist()
    # What goes to NOBODY in this round stands before the share of the first member.
    return {
        member: MemberAssignment(NumberedPartitions(numbering, numbers[start:end]))
        for member, start, end in zip(members, ends, ends[1:], strict=False)
    }
