"""All members subscribe to the same topics: exact quotas, and no partition moves unnecessarily.

With P partitions and N members, each member gets P div N, and P mod N members get one more. A member keeps its
partitions up to its quota, the lowest partition numbers first. A member that owns more than the smaller quota keeps the
larger one while there are larger ones left, because balance does not require that move. The remaining partitions are
distributed in turn, first to the members below the smaller quota, then to those that may still have the larger one.

The result is the same as Java's, partition for partition, except that Java gives the larger quotas to the first owners
in the order of a hash table, and Holdfast in the order of the members.

If racks matter (KIP-881), members do not keep partitions without a replica in their rack. Before the distribution there
is another one that assigns partitions only to members with a replica in their rack. Quotas do not change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.partition_index import UNASSIGNED, Numbers, PartitionIndex
from holdfast.assignors.sticky_racks import NearDistribution, Racks


def assign_equally(numbering: PartitionIndex, members: int, owner: Numbers, racks: Racks | None = None) -> Numbers:
    """The member that gets each partition; ``owner`` is the current one. ``racks``, if they matter."""
    if racks is not None:
        owner = racks.without_far_ones(owner)
    smaller, larger_quotas = divmod(numbering.total, members)
    has = np.bincount(owner + 1, minlength=members + 1)[1:]
    keeps = np.minimum(has, smaller)
    with_larger = np.flatnonzero(has > smaller)[:larger_quotas]
    keeps[with_larger] += 1
    larger_quotas -= len(with_larger)

    assigned = _keep(numbering, owner, has, keeps)
    left = np.flatnonzero(assigned == UNASSIGNED)
    # Members that had the smaller quota from the beginning are the first to get a larger one.
    may_have_more = np.flatnonzero(keeps == smaller)
    if racks is not None:
        near = NearDistribution(racks, assigned, keeps, smaller, larger_quotas)
        left, may_have_more, larger_quotas = near.distribute(left, may_have_more)
    if len(left):
        assigned[left] = _distribute(smaller - keeps, may_have_more, larger_quotas)
    return assigned


def _keep(numbering: PartitionIndex, owner: Numbers, has: NDArray[np.int64], keeps: NDArray[np.int64]) -> Numbers:
    """The owners without the partitions that they do not keep. The highest partition numbers are removed first."""
    assigned = owner.copy()
    gives_up = has > keeps
    if not gives_up.any():
        return assigned
    # One entry more than there are members: UNASSIGNED, which looks up the last, has nothing to revoke.
    concerned = np.flatnonzero(np.append(gives_up, False)[owner])
    partition = numbering.partition_in_topic()[concerned]
    # Numbers ascend by topic, so a stable sort by partition, then by member, is sufficient.
    by_partition = concerned[np.argsort(partition, kind="stable")]
    by_member = by_partition[np.argsort(owner[by_partition], kind="stable")]
    givers = np.flatnonzero(gives_up)
    rank = _ranks(has[givers])
    beyond = rank >= np.repeat(keeps[givers], has[givers])
    assigned[by_member[beyond]] = UNASSIGNED
    return assigned


def _distribute(wants: NDArray[np.int64], may_have_more: NDArray[np.int64], larger_quotas: int) -> Numbers:
    """The members that get the free partitions, in order."""
    below = np.flatnonzero(wants > 0)
    rounds = np.arange(wants[below].max(initial=0))[:, np.newaxis] < wants[below]
    distributed = below[np.nonzero(rounds)[1]]
    # First the members that already have the smaller quota, then the others in the order in which they reach it.
    in_line = np.concatenate((may_have_more, below[np.argsort(wants[below], kind="stable")]))
    return np.concatenate((distributed, in_line[:larger_quotas])).astype(np.int32)


def _ranks(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, 2, … for each of the lengths."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
