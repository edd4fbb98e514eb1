"""What is written to a checkpoint is what is read from it, and nothing else is taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import BatchOffsets, OffsetRange

NAMES = st.text("abcxyz019._-", min_size=1, max_size=8)
OFFSETS = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)).map(lambda two: (min(two), max(two)))
RANGES = st.dictionaries(st.tuples(NAMES, st.integers(0, 100_000)), OFFSETS, max_size=20)
BEGUN = st.dictionaries(NAMES, st.integers(0, 100_000), max_size=3)
PROGRESS = st.builds(BatchOffsets, RANGES, st.none() | BEGUN) | st.builds(
    BatchOffsets, RANGES, BEGUN, st.integers(0, 2**53), RANGES
)


@given(PROGRESS)
def test_a_checkpoint_is_read_as_it_was_written(progress: BatchOffsets) -> None:
    said = json.loads(json.dumps(progress.to_json()))

    assert BatchOffsets.from_json(said) == progress
    assert json.dumps(BatchOffsets.from_json(said).to_json()) == json.dumps(said)  # Spark compares the text


@given(PROGRESS)
def test_the_text_does_not_depend_on_the_order_in_which_partitions_came(progress: BatchOffsets) -> None:
    turned = BatchOffsets(
        dict(reversed(list(progress.ranges.items()))),
        progress.initial_partitions,
        progress.planned_ms,
        dict(reversed(list(progress.restarts.items()))),
    )

    assert json.dumps(turned.to_json()) == json.dumps(progress.to_json())


def test_what_is_written() -> None:
    progress = BatchOffsets({("orders", 10): (77, 77), ("orders", 2): (5, 9)}, {"orders": 12})

    assert json.dumps(progress.to_json()) == '{"orders": {"2": [5, 9], "10": [77, 77]}, "": {"orders": 12}}'
    assert progress.end == {("orders", 2): 9, ("orders", 10): 77}


def test_checkpoint_json_has_plan_time_and_old_checkpoints_parse_without_it() -> None:
    said = BatchOffsets({("orders", 2): (5, 9)}, {"orders": 12}, 1_794_787_200_000).to_json()

    assert json.dumps(said) == '{"orders": {"2": [5, 9]}, "": {"orders": 12, "": 1794787200000}}'
    assert BatchOffsets.from_json(said).planned_ms == 1_794_787_200_000
    assert BatchOffsets.from_json({"orders": {"2": [5, 9]}, "": {"orders": 12}}) == BatchOffsets(
        {("orders", 2): (5, 9)}, {"orders": 12}, None
    )


def test_checkpoint_json_has_the_starts_of_partitions_that_were_never_assigned() -> None:
    progress = BatchOffsets({("orders", 0): (0, 9)}, {"orders": 2}, 5, {("orders", 1): (950, 0)})

    assert json.dumps(progress.to_json()) == (
        '{"orders": {"0": [0, 9]}, "": {"orders": 2, "": 5, "not assigned": {"orders": {"1": [950, 0]}}}}'
    )


@pytest.mark.parametrize("nothing", [None, {}])
def test_before_the_first_batch_there_is_nothing(nothing: dict[str, Any] | None) -> None:
    progress = BatchOffsets.from_json(nothing)

    assert progress.ranges == {} and progress.initial_partitions is None and progress.to_json() == {}


@pytest.mark.parametrize(
    "said",
    [
        {"orders": {"0": 23}},  # Spark's own source
        {"orders": {"0": [1, 2, 3]}},
        {"orders": {"zero": [1, 2]}},
        {"orders": {"0": [None, 2]}},
        {"orders": [1, 2]},
        {"": 5},
        {"": {"orders": 2, "not assigned": {"orders": {"1": 950}}}},
        {"offset": 5},
        ["orders"],
    ],
)
def test_a_checkpoint_of_another_source_is_refused(said: Any) -> None:
    with pytest.raises(ConfigError, match="offsets that this source did not write"):
        BatchOffsets.from_json(said)


def test_a_range_knows_where_it_is() -> None:
    assert OffsetRange("orders", 3, 10, 20).where == ("orders", 3)
