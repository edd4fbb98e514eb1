"""The last improvements of an assignment, when no single partition can be moved for the better any more.

The table of shares is a flow from topics to members, and every change to it is a cycle in its residual network:

    member → topic    the member gives up one partition of the topic; costs 1 if it owned it
    topic  → member   a subscriber gets one; costs -1 if that is one it had lost
    member → pool     the member ends with one more than before; costs its load
    pool   → member   the member ends with one less; costs its load less one, negatively

Loads weigh more than all moves together, so evenness comes first and stickiness second. The shares are the best
possible when no cycle of negative cost is left, and until then each one found shows what to change. They are found by
the way of Bellman and Ford, on whole tables at once.

A column may also stand for several members that subscribe to the same, who share its load evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
"""Topics × members: how many."""

_FAR: Final = 2**60
_UNREACHED: Final = -2
_POOL: Final = -1


@dataclass(frozen=True, slots=True)
class _Cycle:
    cells: list[tuple[int, int, int]]
    """Topic, member, and by how much its share changes: 1 or -1."""
    gainer: int
    loser: int
    """The members at both ends, if the cycle goes through the pool; otherwise nobody."""


def exchange(
    eligible: NDArray[np.bool_], shares: Table, owned: Table, sizes: NDArray[np.int64], most_work: int
) -> None:
    """Change ``shares`` until they are the most even ones and, of those, the ones with the fewest moves.

    ``sizes`` says how many members each column stands for. ``most_work`` bounds the cells that are looked at: small
    tables never need so many, and a huge one ends near the best instead of at it.
    """
    while most_work > 0:
        cycle, rounds = _negative_cycle(eligible, shares, owned, sizes)
        if cycle is None:
            return
        amount = _how_often(cycle, shares, owned, sizes)
        for topic, member, change in cycle.cells:
            shares[topic, member] += change * amount
        most_work -= rounds * shares.size


def _how_often(cycle: _Cycle, shares: Table, owned: Table, sizes: NDArray[np.int64]) -> int:
    """How many times over the cycle can be gone through at the same cost."""
    limits = []
    for topic, member, change in cycle.cells:
        share, own = int(shares[topic, member]), int(owned[topic, member])
        if change < 0:
            limits.append(share if share <= own else share - own)
        elif share < own:
            limits.append(own - share)
    if cycle.gainer != _POOL:
        gainer, loser = cycle.gainer, cycle.loser
        limits.append(int(sizes[gainer] - shares[:, gainer].sum() % sizes[gainer]))
        limits.append(int((shares[:, loser].sum() - 1) % sizes[loser]) + 1)
    # The same cell twice in a cycle would be counted once.
    return min(limits) if len({cell[:2] for cell in cycle.cells}) == len(cycle.cells) else 1


def _negative_cycle(
    eligible: NDArray[np.bool_], shares: Table, owned: Table, sizes: NDArray[np.int64]
) -> tuple[_Cycle | None, int]:
    """One cycle that pays, if there is one; and how many times the tables were gone through."""
    topics, members = shares.shape
    load = shares.sum(axis=0)
    weight = 2 * int(shares.sum()) + 1
    gains, loses = weight * (load // sizes), np.where(load > 0, -weight * ((load - 1) // sizes), _FAR)
    give_up = np.where(shares > 0, np.where(shares <= owned, 1, 0), _FAR)
    get = np.where(eligible, np.where(shares < owned, -1, 0), _FAR)

    to_member, to_topic, to_pool = np.zeros(members, np.int64), np.zeros(topics, np.int64), 0
    # Where each was reached from: a topic from a member, a member from a topic or the pool, the pool from a member.
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
    """Take the shorter ways; whether there were any."""
    nearer = reached < distance
    distance[nearer], came_from[nearer] = reached[nearer], by[nearer]
    return bool(nearer.any())


def _closed(member_from: list[int], topic_from: list[int], pool_from: int) -> _Cycle | None:
    """The first cycle among the ways back, if there is one."""
    # Pool, then members, then topics, each with the one it was reached from.
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
