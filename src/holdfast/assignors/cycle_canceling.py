"""The last improvements of an assignment, when moving a single partition no longer improves it.

The matrix of counts is a flow from topics to members, and every change to it is a cycle in its residual network:

    member → topic    the member gives up one partition of the topic; costs 1 if it owned it
    topic  → member   a subscriber gets one; costs -1 if that is one it had lost
    member → pool     the member ends with one more than before; costs its load
    pool   → member   the member ends with one less; costs its load less one, negatively

Loads weigh more than all moves together, so balance has priority over stickiness. The counts are optimal when no cycle
of negative cost is left. Until then, each cycle found is a change that improves them. The Bellman-Ford algorithm finds
the cycles, on whole tables at once.

A column may also represent several members with the same subscription, which divide its load evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

CountMatrix = NDArray[np.int64]
"""Topics × members: the number of partitions."""

_FAR: Final = 2**60
_UNREACHED: Final = -2
_POOL: Final = -1


@dataclass(frozen=True, slots=True)
class _Cycle:
    cells: list[tuple[int, int, int]]
    """Topic, member, and by how much its count changes: 1 or -1."""
    gainer: int
    loser: int
    """The members at both ends, if the cycle goes through the pool; otherwise none."""


def cancel_cycles(
    eligible: NDArray[np.bool_], counts: CountMatrix, owned: CountMatrix, sizes: NDArray[np.int64], max_work: int
) -> None:
    """Change ``counts`` until they are the most even ones with the fewest moves.

    ``sizes`` says how many members each column represents. ``max_work`` limits the number of visited cells. Small
    tables never reach it; a huge one ends near the optimum.
    """
    while max_work > 0:
        cycle, rounds = _negative_cycle(eligible, counts, owned, sizes)
        if cycle is None:
            return
        amount = _repetitions(cycle, counts, owned, sizes)
        for topic, member, change in cycle.cells:
            counts[topic, member] += change * amount
        max_work -= rounds * counts.size


def _repetitions(cycle: _Cycle, counts: CountMatrix, owned: CountMatrix, sizes: NDArray[np.int64]) -> int:
    """How many times the cycle can be applied at the same cost."""
    limits = []
    for topic, member, change in cycle.cells:
        count, own = int(counts[topic, member]), int(owned[topic, member])
        if change < 0:
            limits.append(count if count <= own else count - own)
        elif count < own:
            limits.append(own - count)
    if cycle.gainer != _POOL:
        gainer, loser = cycle.gainer, cycle.loser
        limits.append(int(sizes[gainer] - counts[:, gainer].sum() % sizes[gainer]))
        limits.append(int((counts[:, loser].sum() - 1) % sizes[loser]) + 1)
    # The same cell twice in a cycle would be counted once.
    return min(limits) if len({cell[:2] for cell in cycle.cells}) == len(cycle.cells) else 1


def _negative_cycle(
    eligible: NDArray[np.bool_], counts: CountMatrix, owned: CountMatrix, sizes: NDArray[np.int64]
) -> tuple[_Cycle | None, int]:
    """A cycle of negative cost, if any, and the number of passes over the tables."""
    topics, members = counts.shape
    load = counts.sum(axis=0)
    weight = 2 * int(counts.sum()) + 1
    gains, loses = weight * (load // sizes), np.where(load > 0, -weight * ((load - 1) // sizes), _FAR)
    give_up = np.where(counts > 0, np.where(counts <= owned, 1, 0), _FAR)
    get = np.where(eligible, np.where(counts < owned, -1, 0), _FAR)

    to_member, to_topic, to_pool = np.zeros(members, np.int64), np.zeros(topics, np.int64), 0
    # The predecessor of each: of a topic a member, of a member a topic or the pool, of the pool a member.
    member_from, topic_from, pool_from = np.full(members, _UNREACHED), np.full(topics, _UNREACHED), _UNREACHED
    for rounds in range(1, topics + members + 3):
        changed = _nearer(to_member, member_from, to_pool + loses, np.full(members, _POOL))
        through = to_member + give_up
        best = through.argmin(axis=1)
        changed |= _nearer(to_topic, topic_from, through[np.arange(topics), best], best)
        through = to_topic[:, np.newaxis] + get
        best = through.argmin(axis=0)
        changed |= _nearer(to_member, member_from, through[best, np.arange(members)], best)
        into_pool = to_member + gains
        last = int(into_pool.argmin())
        if into_pool[last] < to_pool:
            to_pool, pool_from, changed = int(into_pool[last]), last, True

        if not changed:
            return None, rounds
        if cycle := _closed(member_from.tolist(), topic_from.tolist(), pool_from):
            return cycle, rounds
    return None, rounds


def _nearer(
    distance: NDArray[np.int64], came_from: NDArray[np.int64], reached: NDArray[np.int64], by: NDArray[np.int64]
) -> bool:
    """Take the shorter paths. Returns whether there were any."""
    nearer = reached < distance
    distance[nearer], came_from[nearer] = reached[nearer], by[nearer]
    return bool(nearer.any())


def _closed(member_from: list[int], topic_from: list[int], pool_from: int) -> _Cycle | None:
    """The first cycle among the predecessors, if any."""
    # Pool, then members, then topics, each with its predecessor.
    members = len(member_from)
    back = [_UNREACHED if pool_from == _UNREACHED else pool_from + 1]
    back += [came if came == _UNREACHED else 0 if came == _POOL else 1 + members + came for came in member_from]
    back += [came if came == _UNREACHED else 1 + came for came in topic_from]
    seen = [-1] * len(back)
    for start in range(len(back)):
        at = start
        while at != _UNREACHED and seen[at] == -1:
            seen[at] = start
            at = back[at]
        if at != _UNREACHED and seen[at] == start:
            return _along(at, back, members)
    return None


def _along(start: int, back: list[int], members: int) -> _Cycle:
    cells = []
    gainer = loser = _POOL
    at = start
    while True:
        came = back[at]
        if at == 0:
            gainer = came - 1
        elif came == 0:
            loser = at - 1
        elif at > members:
            cells.append((at - 1 - members, came - 1, -1))
        else:
            cells.append((came - 1 - members, at - 1, 1))
        at = came
        if at == start:
            return _Cycle(cells, gainer, loser)
