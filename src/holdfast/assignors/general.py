"""Members subscribe to different topics: as balanced as subscriptions allow, and then with as few moves as possible.

The partitions of a topic are interchangeable. Therefore only the number of partitions of each topic for each member is
computed, a matrix of topics × members. Then each member keeps its own partitions first.

1. Each member keeps what it owns. The rest of each topic goes to its least loaded subscribers, topics with few of
   them first, for these have the least choice.
2. Topic by topic, the partitions without an owner are levelled.
3. Members that subscribe to the same are taken as one, and those few columns are brought to the best balance by
   exchanges over several of them: from a to b, and from b to c (see cycle_canceling.py).
4. Topic by topic, the partitions with an owner are levelled too.
5. Exchanges once more, now between single members: the last moves that are not needed.

Java's assignor ends when no single move improves the balance. This one ends at the best possible balance.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.cycle_canceling import CountMatrix, cancel_cycles
from holdfast.assignors.partition_index import UNASSIGNED, Numbers, PartitionIndex

_MAX_WORK: Final = 20_000_000
"""The number of cells that exchanges may visit, in some tenths of a second. Groups of some ten members and topics never
reach it."""


def assign_unequally(index: PartitionIndex, eligible: NDArray[np.bool_], owner: Numbers) -> Numbers:
    """The member that gets each partition. ``eligible`` has the subscriptions, by topic and member."""
    topics, members = eligible.shape
    places = index.topic_places()
    # A member that no longer subscribes to a topic does not own its partitions.
    owner = np.where((owner != UNASSIGNED) & eligible[places, owner], owner, UNASSIGNED).astype(np.int32)
    has = owner != UNASSIGNED
    cells = places[has].astype(np.int64) * members + owner[has]
    owned: CountMatrix = np.bincount(cells, minlength=topics * members).reshape(topics, members)

    counts = owned.copy()
    _distribute_unowned(index.counts - owned.sum(axis=1), eligible, counts)
    _level(eligible, counts, owned)
    _cancel_cycles_between_classes(eligible, counts, owned)
    _level(eligible, counts, np.zeros_like(owned))
    cancel_cycles(eligible, counts, owned, np.ones(members, dtype=np.int64), _MAX_WORK)
    return _choose(index, counts, owner, places)


def _cancel_cycles_between_classes(eligible: NDArray[np.bool_], counts: CountMatrix, owned: CountMatrix) -> None:
    """The best balance between classes of members with the same subscription, evened out within each class."""
    of_class, class_of = np.unique(eligible, axis=1, return_inverse=True)
    classes = [np.flatnonzero(class_of == number) for number in range(of_class.shape[1])]
    if 2 * len(classes) > len(class_of):
        return
    before = np.stack([counts[:, members].sum(axis=1) for members in classes], axis=1)
    owned_by_class = np.stack([owned[:, members].sum(axis=1) for members in classes], axis=1)
    after = before.copy()
    cancel_cycles(of_class, after, owned_by_class, np.array([len(members) for members in classes]), _MAX_WORK)
    load = counts.sum(axis=0)
    for topic, number in np.argwhere(after < before):
        members = classes[number]
        less = drain(load[members], counts[topic, members], int(before[topic, number] - after[topic, number]))
        counts[topic, members] -= less
        load[members] -= less
    for topic, number in np.argwhere(after > before):
        members = classes[number]
        more = pour(load[members], int(after[topic, number] - before[topic, number]))
        counts[topic, members] += more
        load[members] += more
    for members in classes:
        _even_out(members, counts, owned)


def _even_out(members: NDArray[np.int64], counts: CountMatrix, owned: CountMatrix) -> None:
    """Equal loads for members with the same subscription, because any partition of one can be assigned to any other."""
    topics = np.arange(len(counts))
    load = counts[:, members].sum(axis=0)
    level, rest = divmod(int(load.sum()), len(members))
    surplus = load - level
    surplus[np.argsort(-load, kind="stable")[:rest]] -= 1
    takers = np.repeat(members, np.maximum(-surplus, 0))
    for giver, amount in zip(members[surplus > 0], surplus[surplus > 0], strict=True):
        # Partitions that it did not own move first.
        own = np.minimum(counts[:, giver], owned[:, giver])
        given = np.concatenate((np.repeat(topics, counts[:, giver] - own), np.repeat(topics, own)))[:amount]
        np.subtract.at(counts, (given, giver), 1)
        np.add.at(counts, (given, takers[:amount]), 1)
        takers = takers[amount:]


def _distribute_unowned(free: NDArray[np.int64], eligible: NDArray[np.bool_], counts: CountMatrix) -> None:
    load = counts.sum(axis=0)
    for topic in np.argsort(eligible.sum(axis=1), kind="stable"):
        if free[topic]:
            subscribers = np.flatnonzero(eligible[topic])
            more = pour(load[subscribers], int(free[topic]))
            counts[topic, subscribers] += more
            load[subscribers] += more


def _level(eligible: NDArray[np.bool_], counts: CountMatrix, fixed: CountMatrix) -> None:
    """Move partitions of a member beyond ``fixed`` to other subscribers of the topic, until that no longer improves the
    balance."""
    load = counts.sum(axis=0)
    shared = np.flatnonzero(eligible.sum(axis=1) > 1)
    # A list, because every topic has its turn: a balanced topic may become unbalanced by another.
    while any([_level_topic(eligible[topic], counts[topic], fixed[topic], load) for topic in shared]):  # noqa: C419
        pass


def _level_topic(
    eligible: NDArray[np.bool_], count: NDArray[np.int64], fixed: NDArray[np.int64], load: NDArray[np.int64]
) -> bool:
    movable = np.maximum(count - fixed, 0)
    givers = movable > 0
    if not givers.any() or load[givers].max() - load[eligible].min() < 2:
        return False
    subscribers = np.flatnonzero(eligible)
    now = movable[subscribers]
    then = pour(load[subscribers] - now, int(now.sum()), prefer=load[subscribers])
    count[subscribers] += then - now
    load[subscribers] += then - now
    return True


def pour(load: NDArray[np.int64], amount: int, prefer: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """How many each gets if each is given to the member with the fewest.

    The last, incomplete round goes to the first members in order, or with ``prefer`` to those with the highest value.
    """
    order = np.argsort(load, kind="stable")
    ascending = load[order]
    sums = np.cumsum(ascending)
    # The number needed to raise the first one, two, three … to the level of the last of them.
    takes = ascending * np.arange(1, len(load) + 1) - sums
    reached = int(np.searchsorted(takes, amount, side="right"))
    level, rest = divmod(int(sums[reached - 1]) + amount, reached)
    raised = order[:reached]
    result = np.zeros_like(load)
    result[raised] = level - load[raised]
    last_round = np.sort(raised) if prefer is None else raised[np.argsort(-prefer[raised], kind="stable")]
    result[last_round[:rest]] += 1
    return result


def drain(load: NDArray[np.int64], maximum: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
    """How many each gives if each is taken from the member with the most; at most its ``maximum``."""

    def above(level: int) -> NDArray[np.int64]:
        return np.minimum(maximum, np.maximum(load - level, 0))

    enough, too_high = 0, int(load.max()) + 1
    while too_high - enough > 1:
        level = (enough + too_high) // 2
        enough, too_high = (level, too_high) if above(level).sum() >= amount else (enough, level)
    result = above(enough + 1)
    last_round = np.flatnonzero(above(enough) > result)
    result[last_round[: amount - int(result.sum())]] += 1
    return result


def _choose(index: PartitionIndex, counts: CountMatrix, owner: Numbers, places: Numbers) -> Numbers:
    """The partitions for the counts: first those that a member owns, the lowest numbers first, then free ones."""
    topics, members = counts.shape
    assigned = np.full(index.total, UNASSIGNED, dtype=np.int32)
    kept = np.zeros_like(counts)
    has = np.flatnonzero(owner != UNASSIGNED)
    if len(has):
        cells = places[has].astype(np.int64) * members + owner[has]
        in_cells = np.argsort(cells, kind="stable")
        sorted_cells = cells[in_cells]
        first = np.flatnonzero(np.diff(sorted_cells, prepend=-1))
        rank = np.arange(len(has)) - np.repeat(first, np.diff(first, append=len(has)))
        keeps = rank < counts.reshape(-1)[sorted_cells]
        staying = has[in_cells[keeps]]
        assigned[staying] = owner[staying]
        kept = np.bincount(sorted_cells[keeps], minlength=topics * members).reshape(topics, members)
    # Both are in the order of topics, so the free partitions of each topic are assigned to the members that need some
    # of it.
    assigned[assigned == UNASSIGNED] = np.repeat(np.tile(np.arange(members), topics), (counts - kept).reshape(-1))
    return assigned
