"""Errors that the user of a query gets."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import BatchOffsets, OffsetRange
from holdfast.spark.options import stream_options
from holdfast.spark.pipelines import Aggregate, Land
from holdfast.spark.pipelines.errors import QueryFailed, Unwritable
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import open_files
from holdfast.spark.pipelines.spark_errors import spark_error_text
from holdfast.spark.stream_planner import StreamPlanner
from tests.support.s3_emulator import S3Emulator
from tests.support.spark_harness import SparkHarness
from tests.unit.spark.pipelines.land_harness import new_writer, opened, writing

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.group.id": "lake", "subscribe": "orders"}


def test_errors_of_spark_are_reported_without_its_additions() -> None:
    said = (
        "[STREAM_FAILED] Query [id = 096b1d61, runId = 637d74f5] terminated with exception: the topic 'x' does not\n"
        "exist SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 096b1d61]\n"
    )

    assert spark_error_text(said) == "the topic 'x' does not exist"
    assert spark_error_text("") == "Spark has ended the query"


IN_A_TASK = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/venv/holdfast/spark/pipelines/land/land_query.py", line 106, in write
    at = read_ranges(tasks[number])
         ^^^^^^^^^^^^^^^^^^^^^^^^^^
{}

JVM stacktrace:
org.apache.spark.SparkException
\tat org.apache.spark.api.python.PythonRunner
"""
IN_A_LOST_TASK = """An error occurred while calling o85.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2898)
"""


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            PythonException(IN_A_TASK.format("holdfast.spark.watermarks.DataLoss: orders-0: the records\nare gone")),
            "orders-0: the records are gone",
        ),
        (PythonException(IN_A_TASK.format("KeyError: 'key'")), "KeyError: 'key'"),
        (
            Py4JJavaError(IN_A_LOST_TASK),
            "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times",
        ),
    ],
    ids=["ours", "Python's", "Spark's"],
)
def test_an_error_of_a_task_is_raised_in_one_sentence(tmp_path: Path, raised: Exception, said: str) -> None:
    # given a query whose batch has failed in a task
    session: Any = object()
    query = Land(session, tmp_path / "lake", OPTIONS, checkpoint=tmp_path / "checkpoint")
    with patch.object(query, "_process", _raising(raised)), pytest.raises(QueryFailed):  # Spark ends the query
        _run_batch(query)
    running: Any = SimpleNamespace(awaitTermination=_raising(StreamingQueryException("it has ended")))
    query.query = running

    # when
    with pytest.raises(QueryFailed) as reported:
        query.wait()

    # then
    assert str(reported.value) == said


def test_an_error_of_the_driver_is_raised_as_it_is(tmp_path: Path) -> None:
    session: Any = object()
    query = Land(session, tmp_path / "lake", OPTIONS, checkpoint=tmp_path / "checkpoint")
    full = Unwritable("there is no room left")
    with patch.object(query, "_process", _raising(full)), pytest.raises(Unwritable):
        _run_batch(query)

    assert query._failure is full


def _run_batch(query: Land) -> None:
    rows: Any = object()
    with patch.object(query, "_ranges", lambda _number: []):
        query._batch(rows, 0)


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_a_session_of_spark_connect_is_refused() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()

    with pytest.raises(ConfigError, match=r"land runs on the driver: .* not one of Spark Connect"):
        Land(session, "lake", OPTIONS)
    with pytest.raises(ConfigError, match=r"aggregate runs on the driver: .* not one of Spark Connect"):
        Aggregate(session, "totals", OPTIONS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribes": "x"}, "did you mean 'subscribe'"),
        ({"endingOffsets": "latest"}, "is not for a streaming query"),
        ({"kafka.enable.auto.commit": "true"}, "cannot be set"),
    ],
)
def test_options_of_the_source_are_checked_before_anything_is_started(options: dict[str, str], said: str) -> None:
    session: Any = object()  # it is not asked for anything

    with pytest.raises(ConfigError, match=said):
        Land(session, "lake", {**OPTIONS, **options})


def test_an_invalid_state_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session: Any = object()

    with pytest.raises(ConfigError, match="aggregate does not support the option minPartitions"):
        Aggregate(session, "totals", {**OPTIONS, "minPartitions": 7})
    with pytest.raises(ConfigError, match="is no length of time"):
        Aggregate(session, "totals", OPTIONS, window="soon")

    assert list(tmp_path.iterdir()) == []
    Aggregate(session, "totals", OPTIONS)
    assert len(list(tmp_path.iterdir())) == 2, "the control: a dynamic one has a checkpoint and a cache"


def test_a_static_member_keeps_its_cache_and_a_dynamic_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    session: Any = object()
    static = {**OPTIONS, "kafka.group.instance.id": "totals-1"}

    by_default = [Aggregate(session, path, static)._cache for path in ("totals", "totals", "others")]
    given = Aggregate(session, "totals", static, cache=tmp_path / "given")
    dynamic = Aggregate(session, "totals", OPTIONS, cache=tmp_path / "given")

    assert by_default[0] == by_default[1] != by_default[2]
    assert {path.parent.parent for path in by_default} == {tmp_path / "home" / "holdfast" / "aggregate"}
    assert given._cache == tmp_path / "given" / "totals-1"
    assert dynamic._cache.parent == tmp_path / "given" and dynamic._cache.is_dir()
    for one in (given, dynamic):
        one._cache.mkdir(exist_ok=True)
        one.stop()
    assert given._cache.is_dir()
    assert not dynamic._cache.exists()


@pytest.mark.parametrize("pipeline", [Land, Aggregate])
def test_a_new_table_in_s3_does_not_continue_with_the_checkpoint_of_a_deleted_one(
    s3: S3Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: type[Land | Aggregate]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    session: Any = object()
    path = f"s3://{s3.new_bucket()}/lake"
    static = {**OPTIONS, "kafka.group.instance.id": "lake-1"}

    def checkpoint() -> Path:
        return pipeline(session, path, static, storage_options=s3.options)._cached_checkpoint()

    first = checkpoint()
    assert checkpoint() == first, "the control: as long as the table exists, its checkpoint stays"

    files = open_files(Location.parse(path, "table", s3.options))
    (directory,) = files.directories("")
    for name in files.names(directory):
        files.remove(f"{directory}/{name}")

    assert checkpoint() != first
    assert first.is_relative_to(tmp_path / "holdfast" / pipeline.NAME)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_repeated_batch_with_a_deleted_beginning_leaves_a_gap(world: SparkHarness, tmp_path: Path, fail: str) -> None:
    # given a batch that was planned and not run, and retention that took its first records
    world.make_topic(2, each=10)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    planned = BatchOffsets({(world.topic, 0): (5, 10), (world.topic, 1): (5, 10)}, {world.topic: 2})
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(planned.to_json())}")
    world.delete_records(0, 8)
    session: Any = object()
    query = Land(session, tmp_path / "lake", world.options({"failOnDataLoss": fail}), checkpoint=checkpoint)
    planner = StreamPlanner(stream_options(query._options_of_run()))

    # when it is planned and run again
    try:
        planner.plan_batch({}, planned.to_json())
        ranges = query._ranges(0)
    finally:
        planner.close()
        query.stop()

    # then
    first = 8 if fail == "false" else 5  # the executors will say what is lost
    assert ranges == [OffsetRange(world.topic, 0, first, 10), OffsetRange(world.topic, 1, 5, 10)]
    if fail == "false":
        table = Location.parse(tmp_path / "lake")
        earlier = [OffsetRange(world.topic, 0, 4, 5)]
        writer = new_writer(table, fail_on_data_loss=False)
        writer.land(earlier, writing(table))
        landed = writer.land(ranges, writing(table))
        assert landed.lost == [OffsetRange(world.topic, 0, 5, 8)]
        assert opened(table).history(1)[0]["lost"] == [[world.topic, 0, 5, 8]]
        assert landed.rows == 2 + 5
