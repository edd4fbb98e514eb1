"""Limits the size of batches and splits them into tasks. Pure functions, without a broker."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from holdfast.spark.batch_offsets import OffsetRange

MAX_SHARED_TASK_ROWS: Final = 10_000
"""Up to this many records, ranges are combined into one task. Starting a task takes about 45 ms, in which some 20,000
records could be read, so one task is faster regardless of the number of cores."""


class OffsetRanges(InputPartition):
    """The ranges of one task. The reader that Spark sends with it is the same for every batch."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"Ranges({', '.join(f'{one.topic}-{one.partition} {one.start}..{one.end}' for one in self.ranges)})"


def limited(ranges: Sequence[OffsetRange], max_records: int | None) -> list[OffsetRange]:
    """The same ranges, in the same order, cut so that they contain at most that many records in total.

    Each range gets a part in proportion to its size, and at least one record if the limit allows it. If there are more
    partitions than that, they take turns: the turn depends on the offsets only, so that planning the batch again gives
    the same result. Partitions without records must be passed too, otherwise the turns are not fair.
    """
    total = sum(map(_size, ranges))
    if max_records is None or total <= max_records:
        return list(ranges)
    max_records = max(1, max_records)
    not_empty = sum(1 for one in ranges if _size(one))
    if max_records < not_empty:
        return _in_turn(ranges, max_records)
    # One for each, and the rest by size. No range is exceeded, since there are more records than the limit allows.
    spare, beyond_one = max_records - not_empty, total - not_empty
    return [
        one._replace(end=one.start + 1 + spare * (size - 1) // beyond_one) if (size := _size(one)) else one
        for one in ranges
    ]


def _in_turn(ranges: Sequence[OffsetRange], max_records: int) -> list[OffsetRange]:
    """One record each for as many partitions as the limit allows.

    With every record read, the sum of the starts grows by one, and the turn moves to the next partition. Each partition
    therefore has its turn within as many records as there are partitions.
    """
    by_name = sorted(range(len(ranges)), key=lambda index: ranges[index].where)
    turn = sum(one.start for one in ranges) % len(ranges)
    not_empty = [index for index in by_name[turn:] + by_name[:turn] if _size(ranges[index])]
    chosen = set(not_empty[:max_records])
    return [one._replace(end=one.start + (index in chosen)) for index, one in enumerate(ranges)]


def waits_for_more(
    ranges: Sequence[OffsetRange], min_records: int | None, since_last_batch_s: float | None, max_delay_s: float
) -> bool:
    """Whether the next batch waits, because the ranges have fewer than `min_records` records and the last batch was
    less than `max_delay_s` ago. A negative time is not waited for: the clock was set back."""
    if min_records is None or since_last_batch_s is None or not 0 <= since_last_batch_s < max_delay_s:
        return False
    return sum(map(_size, ranges)) < min_records


def split_into_tasks(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task, by topic and partition. Empty ranges are left out.

    Small ranges are combined into one task and large ones have their own. A task has at most `max_records` records.
    There are at least `min_partitions` tasks, if there are that many records.
    """
    full = sorted(one for one in ranges if _size(one))
    if max_records is not None:
        full = [part for one in full for part in _cut(one, -(-_size(one) // max_records))]
    if min_partitions is not None and min_partitions > len(full):
        return [(part,) for part in _split(full, min_partitions)]
    return _coalesce(full, min_partitions or 1, min(MAX_SHARED_TASK_ROWS, max_records or MAX_SHARED_TASK_ROWS))


def _split(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """`wanted` parts, or one for every record. The range with the largest parts is always split next."""
    parts = [1] * len(ranges)
    # The negated size of each range's largest part (negated, // rounds up): heapq has the smallest in front.
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


def _coalesce(ranges: Sequence[OffsetRange], at_least: int, at_most: int) -> list[tuple[OffsetRange, ...]]:
    """Neighbours are combined into a task as long as it has `at_most` records and `at_least` tasks remain."""
    room = min(at_most, -(-sum(map(_size, ranges)) // at_least))
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
