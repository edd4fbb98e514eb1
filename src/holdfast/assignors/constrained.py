"""Everybody subscribes to the same topics: exact shares, and no partition moves that need not.

Of P partitions and N members everybody gets P div N, and P mod N of them one more. A member keeps what it owns up to
its share, the lowest partition numbers first. Who owns more than the smaller share keeps the larger one while there are
larger ones left, because each of them that goes to somebody else is a move that balance did not ask for. What is left
is dealt, one by one and around, to those below the smaller share; then to those who still may have the larger.

This is Java's way, down to which partition goes where, except that Java gives the larger shares to the first owners in
the order of a hash table, and we in the order of the members.

Where racks matter (KIP-881) members do not keep what has no replica in their rack, and before the deal there is another
one that gives partitions only to members in whose rack there is one. Shares stay as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.numbering import NOBODY, Numbering, Numbers
from holdfast.assignors.sticky_racks import NearDeal, Racks


def assign_equally(numbering: Numbering, members: int, owner: Numbers, racks: Racks | None = None) -> Numbers:
    """Of every partition the member that gets it; ``owner`` says who has it now. ``racks``, where they matter."""
    if racks is not None:
        owner = racks.without_far_ones(owner)
    smaller, larger_shares = divmod(numbering.total, members)
    has = np.bincount(owner + 1, minlength=members + 1)[1:]
    keeps = np.minimum(has, smaller)
    with_larger = np.flatnonzero(has > smaller)[:larger_shares]
    keeps[with_larger] += 1
    larger_shares -= len(with_larger)

    assigned = _keep(numbering, owner, has, keeps)
    left = np.flatnonzero(assigned == NOBODY)
    # Who had the smaller share from the beginning is the first to get a larger one.
    may_have_more = np.flatnonzero(keeps == smaller)
    if racks is not None:
        near = NearDeal(racks, assigned, keeps, smaller, larger_shares)
        left, may_have_more, larger_shares = near.deal(left, may_have_more)
    if len(left):
        assigned[left] = _deal(smaller - keeps, may_have_more, larger_shares)
    return assigned


def _keep(numbering: Numbering, owner: Numbers, has: NDArray[np.int64], keeps: NDArray[np.int64]) -> Numbers:
    """The owners without what they have beyond what they keep: the highest partition numbers go first."""
    assigned = owner.copy()
    gives_up = has > keeps
    if not gives_up.any():
        return assigned
    # One entry more than there are members: NOBODY, who looks up the last, has nothing to give up.
    concerned = np.flatnonzero(np.append(gives_up, False)[owner])
    partition = numbering.partition_in_topic()[concerned]
    # Numbers ascend by topic, so that a stable order by partition, then by member, is all it takes.
    by_partition = concerned[np.argsort(partition, kind="stable")]
    by_member = by_partition[np.argsort(owner[by_partition], kind="stable")]
    givers = np.flatnonzero(gives_up)
    rank = _ranks(has[givers])
    beyond = rank >= np.repeat(keeps[givers], has[givers])
    assigned[by_member[beyond]] = NOBODY
    return assigned


def _deal(wants: NDArray[np.int64], may_have_more: NDArray[np.int64], larger_shares: int) -> Numbers:
    """To whom the free partitions go, in their order."""
    below = np.flatnonzero(wants > 0)
    rounds = np.arange(wants[below].max(initial=0))[:, np.newaxis] < wants[below]
    dealt = below[np.nonzero(rounds)[1]]
    # After those who have the smaller share already, the others in the order in which they come to it.
    in_line = np.concatenate((may_have_more, below[np.argsort(wants[below], kind="stable")]))
    return np.concatenate((dealt, in_line[:larger_shares])).astype(np.int32)


def _ranks(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, 2, … anew for each of the lengths."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
