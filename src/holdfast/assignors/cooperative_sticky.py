"""Cooperative-sticky: members keep reading their partitions until a new assignment lacks them (KIP-429).

A partition that moves is first left unassigned. Its owner revokes it and rejoins, and the second rebalance assigns it.
A member never gets a partition that another one is still reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from typing import Final

import numpy as np

from holdfast.assignors import sticky_user_data
from holdfast.assignors.interface import NO_GENERATION, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.assignors.owned_claims import Claim, Ownership
from holdfast.assignors.partition_index import UNASSIGNED, Numbers, PartitionIndex
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

    def claims(self, subscriptions: Iterable[MemberSubscription], numbering: PartitionIndex) -> Iterator[Claim]:
        for member, subscription in enumerate(subscriptions):
            yield Claim(member, numbering.numbers_of(subscription.owned), _generation(subscription))

    def hand_over(self, assigned: Numbers, ownership: Ownership) -> Numbers:
        return np.where(ownership.free_for(assigned), assigned, np.int32(UNASSIGNED))


def _generation(subscription: MemberSubscription) -> int:
    """Members whose subscription has no field for the generation (before v2) send it in their user data.

    The user data of Java's client is only the generation. librdkafka's is that of the eager sticky assignor, in which
    the generation is last. Read as Java's, it would be the number of topics, an old and wrong claim.
    """
    if subscription.generation > NO_GENERATION:
        return subscription.generation
    user_data = subscription.user_data or b""
    if len(user_data) == _GENERATION.size:
        return max(NO_GENERATION, int(_GENERATION.unpack(user_data)[0]))
    return sticky_user_data.Reader().read(user_data).generation
