"""Members subscribe to different topics: as even as subscriptions allow, and then with as few moves as that allows.

The partitions of a topic are all alike to those who may have them. So what is sought is only how many of each topic
each member gets, a table of topics × members; which partitions those are follows: everybody keeps its own first.

1. Everybody keeps what it owns. The rest of each topic goes to its least loaded subscribers, topics with few of
   them first, for these have the least choice.
2. Topic by topic, what nobody owned is levelled.
3. Members that subscribe to the same are taken as one, and those few columns are brought to the best balance by
   exchanges over several of them: of what a has b may have some, and of what b has c (see exchanges.py).
4. Topic by topic, what somebody owned is levelled too.
5. Exchanges once more, now between single members: the last moves that are not needed.

Where Java's assignor ends once no single move improves the balance, this one ends at the best balance there is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.exchanges import Table, exchange
from holdfast.assignors.numbering import NOBODY, Numbering, Numbers

_MOST_WORK: Final = 20_000_000
"""Cells that exchanges may look at, some tenths of a second. Groups of some ten members and topics never need it."""


def assign_unequally(numbering: Numbering, eligible: NDArray[np.bool_], owner: Numbers) -> Numbers:
    """Of every partition the member that gets it. ``eligible`` says, by topic and member, who subscribes to what."""
    topics, members = eligible.shape
    places = numbering.topic_places()
    # Who no longer subscribes to a topic has no more right to it than anybody.
    owner = np.where((owner != NOBODY) & eligible[places, owner], owner, NOBODY).astype(np.int32)
    has = owner != NOBODY
    cells = places[has].astype(np.int64) * members + owner[has]
    owned: Table = np.bincount(cells, minlength=topics * members).reshape(topics, members)

    shares = owned.copy()
    _give_out(numbering.counts - owned.sum(axis=1), eligible, shares)
    _level(eligible, shares, owned)
    _exchange_between_classes(eligible, shares, owned)
    _level(eligible, shares, np.zeros_like(owned))
    exchange(eligible, shares, owned, np.ones(members, dtype=np.int64), _MOST_WORK)
    return _choose(numbering, shares, owner, places)


def _exchange_between_classes(eligible: NDArray[np.bool_], shares: Table, owned: Table) -> None:
    """The best balance, found for all together who subscribe to the same, and evened out among them."""
    of_class, class_of = np.unique(eligible, axis=1, return_inverse=True)
    classes = [np.flatnonzero(class_of == number) for number in range(of_class.shape[1])]
    if 2 * len(classes) > len(class_of):
        return
    before = np.stack([shares[:, members].sum(axis=1) for members in classes], axis=1)
    owned_by_class = np.stack([owned[:, members].sum(axis=1) for members in classes], axis=1)
    after = before.copy()
    exchange(of_class, after, owned_by_class, np.array([len(members) for members in classes]), _MOST_WORK)
    load = shares.sum(axis=0)
    for topic, number in np.argwhere(after < before):
        members = classes[number]
        less = drain(load[members], shares[topic, members], int(before[topic, number] - after[topic, number]))
        shares[topic, members] -= less
        load[members] -= less
    for topic, number in np.argwhere(after > before):
        members = classes[number]
        more = pour(load[members], int(after[topic, number] - before[topic, number]))
        shares[topic, members] += more
        load[members] += more
    for members in classes:
        _even_out(members, shares, owned)


def _even_out(members: NDArray[np.int64], shares: Table, owned: Table) -> None:
    """Equal loads for members that subscribe to the same: any partition of one can go to any other."""
    topics = np.arange(len(shares))
    load = shares[:, members].sum(axis=0)
    level, rest = divmod(int(load.sum()), len(members))
    surplus = load - level
    surplus[np.argsort(-load, kind="stable")[:rest]] -= 1
    takers = np.repeat(members, np.maximum(-surplus, 0))
    for giver, amount in zip(members[surplus > 0], surplus[surplus > 0], strict=True):
        # What it did not own goes first.
        own = np.minimum(shares[:, giver], owned[:, giver])
        given = np.concatenate((np.repeat(topics, shares[:, giver] - own), np.repeat(topics, own)))[:amount]
        np.subtract.at(shares, (given, giver), 1)
        np.add.at(shares, (given, takers[:amount]), 1)
        takers = takers[amount:]


def _give_out(free: NDArray[np.int64], eligible: NDArray[np.bool_], shares: Table) -> None:
    load = shares.sum(axis=0)
    for topic in np.argsort(eligible.sum(axis=1), kind="stable"):
        if free[topic]:
            subscribers = np.flatnonzero(eligible[topic])
            more = pour(load[subscribers], int(free[topic]))
            shares[topic, subscribers] += more
            load[subscribers] += more


def _level(eligible: NDArray[np.bool_], shares: Table, fixed: Table) -> None:
    """Move what a member has beyond ``fixed`` to other subscribers of the topic, until that levels nothing more."""
    load = shares.sum(axis=0)
    shared = np.flatnonzero(eligible.sum(axis=1) > 1)
    # A list, because every topic has its turn: one that was level may not be so after another.
    while any([_level_topic(eligible[topic], shares[topic], fixed[topic], load) for topic in shared]):  # noqa: C419
        pass


def _level_topic(
    eligible: NDArray[np.bool_], share: NDArray[np.int64], fixed: NDArray[np.int64], load: NDArray[np.int64]
) -> bool:
    movable = np.maximum(share - fixed, 0)
    givers = movable > 0
    if not givers.any() or load[givers].max() - load[eligible].min() < 2:
        return False
    subscribers = np.flatnonzero(eligible)
    now = movable[subscribers]
    then = pour(load[subscribers] - now, int(now.sum()), prefer=load[subscribers])
    share[subscribers] += then - now
    load[subscribers] += then - now
    return True


def pour(load: NDArray[np.int64], amount: int, prefer: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """How much each gets if one after the other goes to whoever has least.

    The last, incomplete round goes to the first in order; with ``prefer``, to those for whom that is highest.
    """
    order = np.argsort(load, kind="stable")
    ascending = load[order]
    sums = np.cumsum(ascending)
    # What it takes to raise the first one, two, three … to the level of the last of them.
    takes = ascending * np.arange(1, len(load) + 1) - sums
    reached = int(np.searchsorted(takes, amount, side="right"))
    level, rest = divmod(int(sums[reached - 1]) + amount, reached)
    raised = order[:reached]
    result = np.zeros_like(load)
    result[raised] = level - load[raised]
    last_round = np.sort(raised) if prefer is None else raised[np.argsort(-prefer[raised], kind="stable")]
    result[last_round[:rest]] += 1
    return result


def drain(load: NDArray[np.int64], most: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
    """How much each gives if one after the other comes from whoever has most; nobody more than its ``most``."""

    def above(level: int) -> NDArray[np.int64]:
        return np.minimum(most, np.maximum(load - level, 0))

    enough, too_high = 0, int(load.max()) + 1
    while too_high - enough > 1:
        level = (enough + too_high) // 2
        enough, too_high = (level, too_high) if above(level).sum() >= amount else (enough, level)
    result = above(enough + 1)
    last_round = np.flatnonzero(above(enough) > result)
    result[last_round[: amount - int(result.sum())]] += 1
    return result


def _choose(numbering: Numbering, shares: Table, owner: Numbers, places: Numbers) -> Numbers:
    """Which partitions the shares are: its own ones first, the lowest of them, then what is free."""
    topics, members = shares.shape
    assigned = np.full(numbering.total, NOBODY, dtype=np.int32)
    kept = np.zeros_like(shares)
    has = np.flatnonzero(owner != NOBODY)
    if len(has):
        cells = places[has].astype(np.int64) * members + owner[has]
        in_cells = np.argsort(cells, kind="stable")
        sorted_cells = cells[in_cells]
        first = np.flatnonzero(np.diff(sorted_cells, prepend=-1))
        rank = np.arange(len(has)) - np.repeat(first, np.diff(first, append=len(has)))
        keeps = rank < shares.reshape(-1)[sorted_cells]
        staying = has[in_cells[keeps]]
        assigned[staying] = owner[staying]
        kept = np.bincount(sorted_cells[keeps], minlength=topics * members).reshape(topics, members)
    # Both are in the order of topics, so that the free partitions of each meet those who lack some of it.
    assigned[assigned == NOBODY] = np.repeat(np.tile(np.arange(members), topics), (shares - kept).reshape(-1))
    return assigned
