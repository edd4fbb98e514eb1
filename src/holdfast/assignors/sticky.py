"""Sticky: eager, so the previous assignment of a member is only known from its user data (KIP-341)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from holdfast.assignors import sticky_user_data
from holdfast.assignors.interface import NO_GENERATION, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.assignors.owned_claims import Claim
from holdfast.assignors.partition_index import UNASSIGNED, PartitionIndex
from holdfast.assignors.sticky_family import StickyFamily


class StickyAssignor(StickyFamily):
    name = "sticky"
    protocol = RebalanceProtocol.EAGER

    def __init__(self) -> None:
        self._previous: Mapping[str, Sequence[int]] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self._previous, self._generation = assignment.partitions, generation

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        return None if self._previous is None else sticky_user_data.encode(self._previous, self._generation)

    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: PartitionIndex) -> Iterator[Claim]:
        # The subscription's list of owned partitions is empty for Java's members, which revoke before they join, and
        # its generation is not that of the user data. Neither is used.
        reader, layout, places = sticky_user_data.Reader(), None, np.empty(0, dtype=np.int64)
        for member, subscription in enumerate(subscriptions):
            previous = reader.read(subscription.user_data)
            if previous.layout is not layout:
                layout = previous.layout
                places = np.array(
                    [numbering.place_of_bytes.get(topic, UNASSIGNED) for topic in layout.topics], np.int64
                )
            yield Claim(member, numbering.numbers_at(places, layout.lengths, previous.partitions), previous.generation)
