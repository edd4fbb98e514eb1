"""Who owns what before an assignment, by what the members say; and they do not always say the truth.

A member that was paused, thrown out and came back still claims what others were given meanwhile (KAFKA-7026). So a
partition that several claim goes to the claim of the newest generation (KIP-341). If several claim it in that same
generation nobody is believed: there is no telling who is right, and to give it to one while the other still reads it is
what must never happen. All this is settled generation by generation, so the order of the members means nothing.

A member that says nothing of its generation is older than all who do, and keeps what nobody else claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.numbering import NOBODY, Numbers


@dataclass(frozen=True, slots=True)
class Claim:
    """What one member says that it owns. It may name a partition twice, and owns it once."""

    member: int
    numbers: Numbers
    generation: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """Of every partition who has it: the number of a member, or NOBODY."""

    owner: Numbers
    contested: NDArray[np.bool_]
    """The partitions that more than one member claims with equal right. They have no owner, and yet are not free."""

    def free_for(self, receiver: Numbers) -> NDArray[np.bool_]:
        """Which partitions the member that is to receive each may begin to read at once."""
        stays_or_was_free: NDArray[np.bool_] = (self.owner == receiver) | (self.owner == NOBODY)
        return stays_or_was_free & ~self.contested


def settle(total: int, claims: Iterable[Claim]) -> Ownership:
    owner = np.full(total, NOBODY, dtype=np.int32)
    contested = np.zeros(total, dtype=np.bool_)
    by_generation: dict[int, list[Claim]] = {}
    for claim in claims:
        if len(claim.numbers):
            by_generation.setdefault(claim.generation, []).append(claim)
    for generation in sorted(by_generation):
        _newer_generation(owner, contested, by_generation[generation])
    owner[contested] = NOBODY
    return Ownership(owner, contested)


def _newer_generation(owner: Numbers, contested: NDArray[np.bool_], claims: list[Claim]) -> None:
    """All that these claim was theirs last, whatever older members say."""
    numbers = np.concatenate([claim.numbers for claim in claims])
    lengths = [len(claim.numbers) for claim in claims]
    members = np.repeat(np.array([claim.member for claim in claims], dtype=np.int32), lengths)
    owner[numbers] = members
    contested[numbers] = False
    # One of several writers is found there, and all the others see that it is not they.
    contested[numbers[owner[numbers] != members]] = True
