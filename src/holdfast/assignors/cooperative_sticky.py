"""Cooperative-sticky: members go on reading what they have until the new assignment lacks it (KIP-429).

So a partition that changes hands is given to nobody at first. Its owner sees that it is gone, gives it up and joins
once more, and in that second round it is free. Nobody ever gets a partition that somebody else is still reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from typing import Final

import numpy as np

from holdfast.assignors import sticky_user_data
from holdfast.assignors.claims import Claim, Ownership
from holdfast.assignors.interface import NO_GENERATION, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.assignors.numbering import NOBODY, Numbering, Numbers
from holdfast.assignors.sticky_family import StickyFamily

_GENERATION: Final = Struct(">i")


class CooperativeStickyAssignor(StickyFamily):
    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:  # noqa: ARG002
        self._generation = generation

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        return _GENERATION.pack(self._generation)

    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: Numbering) -> Iterator[Claim]:
        for member, subscription in enumerate(subscriptions):
            yield Claim(member, numbering.numbers_of(subscription.owned), _generation(subscription))

    def hand_over(self, assigned: Numbers, ownership: Ownership) -> Numbers:
        return np.where(ownership.free_for(assigned), assigned, np.int32(NOBODY))


def _generation(subscription: MemberSubscription) -> int:
    """Members whose subscription has no room for it (before v2) say it in their user data.

    That of Java's client is the generation and nothing else; librdkafka's is that of the eager sticky assignor, in
    which the generation comes last. Read as Java's it would be the number of topics: an old claim, and a wrong one.
    """
    if subscription.generation > NO_GENERATION:
        return subscription.generation
    user_data = subscription.user_data or b""
    if len(user_data) == _GENERATION.size:
        return max(NO_GENERATION, int(_GENERATION.unpack(user_data)[0]))
    return sticky_user_data.Reader().read(user_data).generation
