"""Totals of records, with what runs have, and runs merged: always what a plain count says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark.pipelines.aggregate import totals
from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.errors import SumOverflow
from holdfast.spark.pipelines.aggregate.totals import Run, TotalsBuilder, advanced, merged, positions, to_merge
from tests.unit.spark.pipelines.aggregate_harness import (
    COUNTED,
    MINUTE_US,
    TOPIC,
    WHOLE,
    WINDOWED,
    Hash,
    Record,
    always_the_same,
    by_key,
    record_batch,
    records_of,
)

MAX_KEYS = 2**63 - 1
TOPIC_PARTITION = (TOPIC, 0)


def gathered(*batches: list[Record], of: AggregateSettings = WHOLE, hash_: Hash = by_key) -> pa.Table:
    gathering, first = TotalsBuilder(of), 0
    for records in batches:
        gathering.add(record_batch(TOPIC_PARTITION, first, records, of, hash_))
        first += len(records)
    return gathering.totals()


def run(*batches: list[Record], of: AggregateSettings = WHOLE, hash_: Hash = by_key) -> Run:
    return Run.of(advanced(gathered(*batches, of=of, hash_=hash_), [], of))


def by_name(table: pa.Table) -> dict[Any, tuple[Any, ...]]:
    rows = table.to_pylist()
    found = {row["key"]: (row["count"], row.get("sum"), row.get("last"), row["offset"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_records_become_one_row_for_each_key_sorted_by_hash() -> None:
    table = gathered(
        [Record(b"a", 1, value=b"first"), Record(b"b", 2)], [Record(b"a", 40, value=b"then"), Record(None)]
    )

    assert by_name(table) == {b"a": (2, 41, b"then", 2), b"b": (1, 2, b"v", 1), None: (1, 1, b"v", 3)}
    hashes = table["hash"].to_pylist()
    assert hashes == sorted(hashes)


def test_amounts_that_are_missing_count_for_nothing_and_only_those_make_no_sum() -> None:
    table = gathered([Record(b"a", None), Record(b"a", 5), Record(b"b", None), Record(b"b", None)])

    assert {key: row[:2] for key, row in by_name(table).items()} == {b"a": (2, 5), b"b": (2, None)}


def test_the_last_value_is_the_last_one_also_if_there_is_none() -> None:
    table = gathered([Record(b"a", value=b"x"), Record(b"a", value=None)])

    assert by_name(table)[b"a"][2] is None


def test_windows_are_counted_apart() -> None:
    records = [Record(b"a", 1, at_us) for at_us in (-1, 0, MINUTE_US - 1, MINUTE_US)]

    rows = gathered(records, of=WINDOWED).to_pylist()

    assert sorted((row["window"], row["count"]) for row in rows) == [(-MINUTE_US, 1), (0, 2), (MINUTE_US, 1)]


def test_without_amount_and_last_value_only_counts_are_kept() -> None:
    table = gathered([Record(b"a"), Record(b"a")], of=COUNTED)

    assert table.schema.names == ["hash", "key", "count", "time", "offset"]
    assert by_name(table) == {b"a": (2, None, None, 1)}


def test_totals_are_made_in_between_so_that_memory_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MAX_BUFFERED_ROWS", 10)
    records = records_of(range(95))

    table = gathered(*(records[at : at + 4] for at in range(0, 95, 4)))

    assert by_name(table) == by_name(gathered(records))


# -- with what there is already ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hash_", [by_key, always_the_same])
def test_new_totals_are_the_old_ones_and_what_came(hash_: Hash) -> None:
    older = run([Record(b"a", 1), Record(b"b", 2), Record(b"c", None)], hash_=hash_)
    newer = run([Record(b"a", 10), Record(None, 20)], hash_=hash_)
    touched = gathered([Record(b"a", 100), Record(b"b", 200), Record(b"c", None), Record(b"d", 400)], hash_=hash_)

    table = advanced(touched, [newer, older], WHOLE)

    assert {key: row[:2] for key, row in by_name(table).items()} == {
        b"a": (2, 110),  # the newer run counts, and stands for the older one
        b"b": (2, 202),
        b"c": (2, None),
        b"d": (1, 400),
    }
    assert table.schema.equals(WHOLE.schema)


def test_a_key_is_looked_up_and_not_its_hash_alone() -> None:
    older = run([Record(b"%d" % number) for number in range(5)] + [Record(None)], hash_=always_the_same)
    wanted = gathered([Record(b"3"), Record(b"9"), Record(None)], hash_=always_the_same)

    at = positions(older, wanted, WHOLE)

    found = {key: int(one) for key, one in zip(wanted["key"].to_pylist(), at, strict=True)}
    keys = older.table["key"].to_pylist()
    assert found == {b"3": keys.index(b"3"), b"9": -1, None: keys.index(None)}


def test_an_empty_run_has_nothing() -> None:
    empty = Run.of(WHOLE.schema.empty_table())

    assert positions(empty, gathered([Record(b"a")]), WHOLE).tolist() == [-1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([MAX_KEYS], [1]),
        ([-MAX_KEYS], [-2]),
        ([], [MAX_KEYS, 1]),
        ([], [MAX_KEYS, MAX_KEYS, MAX_KEYS]),
        ([5], [-MAX_KEYS, -MAX_KEYS]),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_that_names_the_key(old: list[int], new: list[int]) -> None:
    runs = [run([Record(b"rich", amount) for amount in old])] if old else []

    with pytest.raises(SumOverflow, match=r"the sum of amount for the key b'rich' does not fit into 64 bits"):
        advanced(gathered([Record(b"poor", 1)] + [Record(b"rich", amount) for amount in new]), runs, WHOLE)


def test_a_sum_that_only_was_too_large_on_the_way_fits() -> None:
    table = advanced(gathered([Record(b"a", amount) for amount in (MAX_KEYS, MAX_KEYS, -MAX_KEYS, -1)]), [], WHOLE)

    assert by_name(table)[b"a"][1] == MAX_KEYS - 1


def test_doubles_are_summed_up_as_doubles() -> None:
    of = replace(WHOLE, amount_type="double")
    older = run([Record(b"a", 0.5)], of=of)

    table = advanced(gathered([Record(b"a", 1.25), Record(b"b", 1e300)], of=of), [older], of)

    assert {key: row[1] for key, row in by_name(table).items()} == {b"a": 1.75, b"b": 1e300}


# -- runs become fewer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hash_", [by_key, always_the_same])
def test_of_a_key_in_several_runs_the_newest_counts(hash_: Hash) -> None:
    runs = [
        run([Record(b"a", 3), Record(b"b", 3)], hash_=hash_),
        run([Record(b"b", 2), Record(None, 2)], hash_=hash_),
        run([Record(b"a", 1), Record(b"c", 1), Record(None, 1)], hash_=hash_),
    ]

    table = merged([one.table for one in runs], WHOLE)

    assert {key: row[1] for key, row in by_name(table).items()} == {b"a": 3, b"b": 3, None: 2, b"c": 1}
    assert np.all(np.diff(Run.of(table.combine_chunks()).hashes) >= 0)


@pytest.mark.parametrize(
    ("rows", "older", "count"),
    [
        (10, [], 0),
        (10, [21], 0),
        (10, [20], 1),
        (10, [20, 61], 1),
        (10, [20, 60], 2),
        (10, [100, 1], 0),  # the rest is older: it stays behind
    ],
)
def test_a_run_takes_in_those_that_are_not_twice_as_large(rows: int, older: list[int], count: int) -> None:
    assert to_merge(rows, older) == count


def test_runs_and_rewrites_of_a_total_grow_with_the_logarithm() -> None:
    runs: list[int] = []
    written = 0
    for _ in range(10_000):  # keys that were never there before: runs never shrink by a merge
        merge = to_merge(100, runs)
        runs = [100 + sum(runs[:merge]), *runs[merge:]]
        written += runs[0]

    assert len(runs) <= 20
    assert written / 1_000_000 <= 14, "of a million totals, each was written so often"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.lists(
            st.builds(
                Record,
                st.sampled_from([None, b"", b"a", b"b", b"c", b"dd"]),
                st.one_of(st.none(), st.integers(-(2**40), 2**40)),
                st.integers(-3 * MINUTE_US, 3 * MINUTE_US),
                st.one_of(st.none(), st.binary(max_size=3)),
            ),
            min_size=1,
            max_size=12,
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([WHOLE, WINDOWED, COUNTED]),
    st.sampled_from([by_key, always_the_same]),
)
def test_batches_that_become_runs_are_what_one_count_of_all_is(
    batches: list[list[Record]], of: AggregateSettings, hash_: Hash
) -> None:
    runs: list[Run] = []
    first = 0
    for records in batches:
        gathering = TotalsBuilder(of)
        gathering.add(record_batch(TOPIC_PARTITION, first, records, of, hash_))
        first += len(records)
        table = advanced(gathering.totals(), runs, of)
        merge = to_merge(table.num_rows, [one.table.num_rows for one in runs])
        table = merged([table, *(one.table for one in runs[:merge])], of)
        runs = [Run.of(table.combine_chunks()), *runs[merge:]]

    everything = advanced(gathered(*batches, of=of, hash_=hash_), [], of)
    found = merged([one.table for one in runs], of)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, everything.to_pylist()))
