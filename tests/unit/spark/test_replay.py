"""The part of a repeated batch that is left: one rule, one decision."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.spark.batch_offsets import BatchOffsets, OffsetRange
from holdfast.spark.options import stream_options
from holdfast.spark.pipelines import Land
from holdfast.spark.replay import NotReplayed, read_decision, skip_before, write_decision
from holdfast.spark.stream_planner import StreamPlanner
from tests.support.eventually import eventually
from tests.support.spark_harness import SparkHarness

BATCH = BatchOffsets({("t", 0): (5, 10), ("t", 1): (3, 3)}, {"t": 2}, 1_794_787_200_000)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (None, (5, 10)),
        (0, (5, 10)),
        (5, (5, 10)),
        (7, (7, 10)),
        (10, (10, 10)),
        (12, (10, 10)),
    ],
)
def test_records_before_an_offset_are_skipped(offset: int | None, left: tuple[int, int]) -> None:
    offsets = {} if offset is None else {("t", 0): offset}

    assert skip_before([OffsetRange("t", 0, 5, 10)], offsets) == [OffsetRange("t", 0, *left)]


def test_a_decision_is_read_as_it_was_written(tmp_path: Path) -> None:
    ranges = [OffsetRange("t", 0, 7, 10), OffsetRange("t", 1, 3, 3)]

    write_decision(tmp_path, BATCH, ranges)

    assert read_decision(tmp_path, BATCH) == ranges
    assert [path.name for path in tmp_path.iterdir()] == ["replayed.json"]


def test_a_missing_decision_and_one_of_another_batch_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotReplayed, match="restart the query"):
        read_decision(tmp_path, BATCH)

    write_decision(tmp_path, BatchOffsets({("t", 0): (5, 11)}), [OffsetRange("t", 0, 5, 11)])

    with pytest.raises(NotReplayed):
        read_decision(tmp_path, BATCH)


def commit_by_others(world: SparkHarness, offsets: dict[int, int]) -> bool:
    with suppress(AssertionError):  # Apache Kafka has to load the coordinator first
        world.set_committed(offsets)
    return world.committed() == offsets


def test_source_and_pipeline_use_one_decision_and_one_offset_fetch(
    world: SparkHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a batch that was planned and not finished, part of which other members have committed since
    world.make_topic(3, each=10)
    eventually(partial(commit_by_others, world, {0: 4, 1: 10}), "the coordinator of a new group")
    end = BatchOffsets({(world.topic, number): (0, 10) for number in range(3)}, {world.topic: 3}).to_json()
    fetches: list[Any] = []
    fetch_offsets = CoordinatorClient.fetch_offsets

    def count(client: CoordinatorClient, *wanted: Any) -> Any:
        if threading.current_thread() is threading.main_thread():  # the members fetch offsets when they are assigned
            fetches.append(wanted)
        return fetch_offsets(client, *wanted)

    monkeypatch.setattr(CoordinatorClient, "fetch_offsets", count)
    planner = StreamPlanner(stream_options(world.options({"_replayDirectory": str(tmp_path)})))
    session: Any = object()  # it is not used
    pipeline = Land(session, tmp_path / "lake", world.options(), checkpoint=tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    pipeline._replayed_up_to, pipeline._replay_directory = 0, tmp_path

    # when Spark repeats it
    try:
        read = planner.plan_batch({}, end)
        again = planner.plan_batch({}, end)
        stored = pipeline._ranges(0)
    finally:
        planner.close()

    # then
    left = {0: (4, 10), 1: (10, 10), 2: (0, 10)}
    assert {one.partition: (one.start, one.end) for one in stored} == left
    assert {one.partition: (one.start, one.end) for one in read} == {0: (4, 10), 2: (0, 10)}
    assert again == read, "Spark may ask twice"
    assert len(fetches) == 1, fetches
