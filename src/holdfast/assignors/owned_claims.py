"""The owners of partitions before an assignment, from the claims of the members, which may be wrong.

A member that was paused and removed and then returns still claims partitions that were assigned to others meanwhile
(KAFKA-7026). If several members claim a partition, the claim of the newest generation counts (KIP-341). If several
claim it in that generation, no claim counts: it is unknown which is right, and a partition must never be assigned to
one member while another still reads it. Claims are resolved generation by generation, so the order of the members is
irrelevant.

A member without a generation counts as older than all others, and keeps partitions that no other member claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.partition_index import UNASSIGNED, Numbers


@dataclass(frozen=True, slots=True)
class Claim:
    """The claims of one member. It may name a partition twice."""

    member: int
    numbers: Numbers
    generation: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of every partition: the number of a member, or UNASSIGNED."""

    owner: Numbers
    contested: NDArray[np.bool_]
    """The partitions that several members claim in the same generation. They have no owner, but are not free."""

    def free_for(self, receiver: Numbers) -> NDArray[np.bool_]:
        """The partitions that the new owner may start to read at once."""
        stays_or_was_free: NDArray[np.bool_] = (self.owner == receiver) | (self.owner == UNASSIGNED)
        return stays_or_was_free & ~self.contested


def resolve(total: int, claims: Iterable[Claim]) -> Ownership:
    owner = np.full(total, UNASSIGNED, dtype=np.int32)
    contested = np.zeros(total, dtype=np.bool_)
    by_generation: dict[int, list[Claim]] = {}
    for claim in claims:
        if len(claim.numbers):
            by_generation.setdefault(claim.generation, []).append(claim)
    for generation in sorted(by_generation):
        _newer_generation(owner, contested, by_generation[generation])
    owner[contested] = UNASSIGNED
    return Ownership(owner, contested)


def _newer_generation(owner: Numbers, contested: NDArray[np.bool_], claims: list[Claim]) -> None:
    """These claims override those of older generations."""
    numbers = np.concatenate([claim.numbers for claim in claims])
    lengths = [len(claim.numbers) for claim in claims]
    members = np.repeat(np.array([claim.member for claim in claims], dtype=np.int32), lengths)
    owner[numbers] = members
    contested[numbers] = False
    # If several members write to the same place, one of them remains, and the others detect the conflict.
    contested[numbers[owner[numbers] != members]] = True
