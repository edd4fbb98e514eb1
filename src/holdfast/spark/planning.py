"""How a batch is cut: how far it reads, and into which tasks. Nothing here asks a broker."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from holdfast.spark.offsets import OffsetRange

ROWS_TOGETHER: Final = 10_000
"""Up to so many records, ranges share a task. A task costs about 45 ms before its first record, in which some 20,000
could have been read: sharing one is the faster way however many cores there are."""


def limited(ranges: Sequence[OffsetRange], most: int | None) -> list[OffsetRange]:
    """The same ranges, in the same order, cut so that they hold at most that many records together.

    Each is given its part by its size, and where the limit allows at least one record. Where there are more partitions
    than that, they take turns: the turn follows from the offsets alone, so that a batch that is planned anew is the
    same one. Give the partitions that have nothing to read too, else the turns are not fair.
    """
    total = sum(map(_size, ranges))
    if most is None or total <= most:
        return list(ranges)
    most = max(1, most)
    waiting = sum(1 for one in ranges if _size(one))
    if most < waiting:
        return _in_turn(ranges, most)
    # One for each, and the rest by size. No range is exceeded, since there is more to read than the limit allows.
    spare, beyond_one = most - waiting, total - waiting
    return [
        one._replace(end=one.start + 1 + spare * (size - 1) // beyond_one) if (size := _size(one)) else one
        for one in ranges
    ]


def _in_turn(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """One record each for as many partitions as the limit allows.

    With every record read the starts grow by one, and the turn moves on by one partition: each comes within as many
    records as there are partitions.
    """
    by_name = sorted(range(len(ranges)), key=lambda index: ranges[index].where)
    turn = sum(one.start for one in ranges) % len(ranges)
    waiting = [index for index in by_name[turn:] + by_name[:turn] if _size(ranges[index])]
    chosen = set(waiting[:most])
    return [one._replace(end=one.start + (index in chosen)) for index, one in enumerate(ranges)]


def into_tasks(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[tuple[OffsetRange, ...]]:
    """What each task reads, by topic and partition. Ranges without records are left out.

    Small ranges share a task and large ones have their own; at least `min_partitions` tasks come of it, if there are
    that many records.
    """
    full = sorted(one for one in ranges if _size(one))
    if min_partitions is not None and min_partitions > len(full):
        return [(part,) for part in _split(full, min_partitions)]
    return _put_together(full, min_partitions or 1)


def _split(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """So many parts, or one for every record: the range with the largest parts is always the next to be cut."""
    parts = [1] * len(ranges)
    # The negated size of each one's largest part (negated, // rounds up): heapq has the smallest in front.
    largest = [(-_size(one), index) for index, one in enumerate(ranges)]
    heapq.heapify(largest)
    for _ in range(wanted - len(ranges)):
        if not largest or largest[0][0] == -1:
            break
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-_size(ranges[index]) // parts[index], index))
    return [part for one, count in zip(ranges, parts, strict=True) for part in _cut(one, count)]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    size = _size(whole)
    bounds = [whole.start + size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(bounds)]


def _put_together(ranges: Sequence[OffsetRange], at_least: int) -> list[tuple[OffsetRange, ...]]:
    """Neighbours share a task as long as it stays small and `at_least` tasks remain."""
    room = min(ROWS_TOGETHER, -(-sum(map(_size, ranges)) // at_least))
    may_join = len(ranges) - at_least
    tasks: list[list[OffsetRange]] = []
    rows = 0
    for one in ranges:
        if tasks and may_join and rows + _size(one) <= room:
            tasks[-1].append(one)
            rows += _size(one)
            may_join -= 1
        else:
            tasks.append([one])
            rows = _size(one)
    return [tuple(task) for task in tasks]


def _size(one: OffsetRange) -> int:
    return max(0, one.end - one.start)
