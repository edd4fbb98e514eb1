"""Sticky: eager, so what a member had before it gave it up is only known from what it tells (KIP-341)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from holdfast.assignors import sticky_user_data
from holdfast.assignors.claims import Claim
from holdfast.assignors.interface import NO_GENERATION, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.assignors.numbering import NOBODY, Numbering
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

    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: Numbering) -> Iterator[Claim]:
        # The subscription's own list of owned partitions is empty in a group of Java's, which revokes before it joins,
        # and its generation is not that of the user data: neither is looked at.
        reader, layout, places = sticky_user_data.Reader(), None, np.empty(0, dtype=np.int64)
        for member, subscription in enumerate(subscriptions):
            previous = reader.read(subscription.user_data)
            if previous.layout is not layout:
                layout = previous.layout
                places = np.array([numbering.place_of_bytes.get(topic, NOBODY) for topic in layout.topics], np.int64)
            yield Claim(member, numbering.numbers_at(places, layout.lengths, previous.partitions), previous.generation)
