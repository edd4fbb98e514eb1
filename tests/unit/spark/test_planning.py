"""How a batch is cut: never beyond a range, never past the limit, nobody starves, and nothing is lost or read twice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.planning import MAX_SHARED_TASK_ROWS, limited, split_into_tasks, waits_for_more


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [one.end - one.start for one in ranges]


@st.composite
def some_ranges(draw: st.DrawFn, largest: int = 50_000) -> list[OffsetRange]:
    partitions = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), unique=True, max_size=30))
    starts = st.integers(0, 2**62)
    lengths = st.one_of(st.integers(0, 3), st.integers(0, largest))
    return [OffsetRange(*where, start := draw(starts), start + draw(lengths)) for where in partitions]


# -- how far ---------------------------------------------------------------------------------------------------------


@given(some_ranges(), st.integers(1, 100_000))
def test_a_limited_batch_stays_within_its_ranges_and_its_limit_and_moves_on(
    ranges: list[OffsetRange], most: int
) -> None:
    cut = limited(ranges, most)

    assert [(one.where, one.start) for one in cut] == [(one.where, one.start) for one in ranges]
    assert all(one.start <= one.end <= whole.end for one, whole in zip(cut, ranges, strict=True))
    assert sum(sizes(cut)) <= most
    assert (sum(sizes(cut)) > 0) == (sum(sizes(ranges)) > 0)
    assert cut == limited(ranges, most)


@given(some_ranges(), st.integers(1, 100_000))
def test_each_partition_gets_something_if_the_limit_allows(ranges: list[OffsetRange], most: int) -> None:
    waiting = sum(size > 0 for size in sizes(ranges))

    given_something = sum(size > 0 for size in sizes(limited(ranges, most)))

    assert given_something == min(most, waiting)


@given(some_ranges(), st.integers(0, 100_000))
def test_a_batch_that_fits_is_left_as_it_is(ranges: list[OffsetRange], beyond: int) -> None:
    assert limited(ranges, sum(sizes(ranges)) + beyond) == ranges
    assert limited(ranges, None) == ranges


def test_the_limit_is_shared_by_size() -> None:
    ranges = [OffsetRange("t", 0, 100, 100 + 9_000), OffsetRange("t", 1, 0, 1_000), OffsetRange("t", 2, 7, 7)]

    assert sizes(limited(ranges, 1_000)) == [899, 100, 0]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_no_partition_starves_however_little_a_batch_may_read(most: int) -> None:
    """Partition 3 has one record, and the others gain more with every batch than is read of them all."""
    at, ends = [0] * 5, [1_000, 500, 0, 1, 10]
    read_in: dict[int, int] = {}
    for batch in range(10):
        ends = [end + 10 if number not in (2, 3) else end for number, end in enumerate(ends)]
        ranges = [OffsetRange("t", number, at[number], ends[number]) for number in range(5)]
        for one in limited(ranges, most):
            if one.end > one.start:
                read_in.setdefault(one.partition, batch)
            at[one.partition] = one.end

    assert at[3] == 1
    assert sorted(read_in) == [0, 1, 3, 4]
    assert max(read_in.values()) < 5


@given(some_ranges(largest=200), st.integers(1, 500))
def test_all_is_read_in_the_end(ranges: list[OffsetRange], most: int) -> None:
    at = {one.where: one.start for one in ranges}
    total = sum(sizes(ranges))
    for _ in range(total):
        rest = [one._replace(start=at[one.where]) for one in ranges]
        if not any(sizes(rest)):
            break
        at |= {one.where: one.end for one in limited(rest, most)}

    assert at == {one.where: one.end for one in ranges}


# -- whether there is enough ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "min_records", "since_s", "waits"),
    [
        (9, 10, 0.0, True),
        (9, 10, 59.9, True),
        (0, 10, 30.0, True),
        (10, 10, 0.0, False),
        (9, 10, 60.0, False),  # long enough
        (9, 10, None, False),  # the first batch
        (9, 10, -1.0, False),  # the clock was set back: it would wait for an unknown time
        (1, None, 0.0, False),
    ],
)
def test_a_batch_waits_for_its_minimum_and_no_longer_than_the_delay(
    records: int, min_records: int | None, since_s: float | None, waits: bool
) -> None:
    ranges = [OffsetRange("t", 0, 100, 100 + records // 2), OffsetRange("t", 1, 7, 7 + records - records // 2)]

    assert waits_for_more(ranges, min_records, since_s, 60.0) is waits


# -- into tasks ------------------------------------------------------------------------------------------------------


@given(some_ranges(), st.one_of(st.none(), st.integers(1, 200)), st.one_of(st.none(), st.integers(100, 100_000)))
def test_tasks_cover_the_ranges_once_and_in_order(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    tasks = split_into_tasks(ranges, min_partitions, max_records)

    parts = [part for task in tasks for part in task]
    assert all(task for task in tasks)
    assert all(part.start < part.end for part in parts)
    assert parts == sorted(parts)
    joined: list[OffsetRange] = []
    for part in parts:
        if joined and joined[-1].where == part.where and joined[-1].end == part.start:
            joined[-1] = joined[-1]._replace(end=part.end)
        else:
            joined.append(part)
    assert joined == sorted(one for one in ranges if one.start < one.end)


@given(some_ranges(), st.integers(1, 200), st.one_of(st.none(), st.integers(100, 100_000)))
def test_there_are_as_many_tasks_as_are_asked_for(
    ranges: list[OffsetRange], min_partitions: int, max_records: int | None
) -> None:
    assert len(split_into_tasks(ranges, min_partitions, max_records)) >= min(min_partitions, sum(sizes(ranges)))


@given(some_ranges(largest=2_000), st.integers(1, 500), st.one_of(st.none(), st.integers(1, 200)))
def test_no_task_has_more_records_than_it_may(
    ranges: list[OffsetRange], max_records: int, min_partitions: int | None
) -> None:
    tasks = split_into_tasks(ranges, min_partitions, max_records)

    assert all(sum(sizes(list(task))) <= max_records for task in tasks)


def test_a_partition_is_cut_into_equal_parts_of_at_most_that_many_records() -> None:
    ranges = [OffsetRange("t", 0, 10, 10 + 25), OffsetRange("t", 1, 0, 4), OffsetRange("t", 2, 0, 4)]

    assert split_into_tasks(ranges, None, 10) == [
        (OffsetRange("t", 0, 10, 18),),
        (OffsetRange("t", 0, 18, 26),),
        (OffsetRange("t", 0, 26, 35),),
        (OffsetRange("t", 1, 0, 4), OffsetRange("t", 2, 0, 4)),
    ]
    assert len(split_into_tasks(ranges, 8, 10)) == 8


@given(some_ranges())
def test_a_task_is_one_partition_or_small(ranges: list[OffsetRange]) -> None:
    tasks = split_into_tasks(ranges, None)

    assert all(len(task) == 1 or sum(sizes(list(task))) <= MAX_SHARED_TASK_ROWS for task in tasks)
    assert all(sum(sizes([*one, next_one[0]])) > MAX_SHARED_TASK_ROWS for one, next_one in pairwise(tasks))


def test_small_ranges_go_into_one_task_and_a_large_one_has_its_own() -> None:
    small = [OffsetRange("t", number, 0, 100) for number in range(12)]
    large = OffsetRange("u", 0, 0, 1_000_000)

    assert split_into_tasks([large, *reversed(small)], None) == [tuple(small), (large,)]
    assert [len(task) for task in split_into_tasks(small, 3)] == [4, 4, 4]


def test_a_large_range_is_split_into_as_many_parts_as_its_size_deserves() -> None:
    ranges = [OffsetRange("t", 0, 10, 10 + 8_000), OffsetRange("t", 1, 0, 2_000)]

    tasks = split_into_tasks(ranges, 5)

    assert [(part.partition, part.end - part.start) for (part,) in tasks] == [(0, 2_000)] * 4 + [(1, 2_000)]


def test_nothing_to_read_is_no_task() -> None:
    assert split_into_tasks([], None) == split_into_tasks([OffsetRange("t", 0, 5, 5)], 10) == []
    assert limited([], 10) == []
