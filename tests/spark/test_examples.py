"""The examples of examples/spark give exactly the results that they describe."""

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.groups.admins import ConfluentAdmin
from tests.spark.records import new_topic
from tests.support.eventually import DEADLINE_S
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXAMPLES = REPOSITORY / "examples" / "spark"
PARTITIONS = 2
MINUTE_MS = 60_000
SET_BY_EXAMPLES = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")
NOON_MS = 1_790_000_000_000 // MINUTE_MS * MINUTE_MS
"""The minute in which the event time of the tests begins."""


class Record(NamedTuple):
    key: str
    value: str = ""
    minute: float = 0
    """Minutes of event time after the beginning."""


class Examples:
    """Runs the examples as scripts in this process, with the session that the tests share."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.directory = directory
        self._monkeypatch = monkeypatch

    def run(self, name: str, **arguments: str) -> None:
        given = {"bootstrap_server": self.bootstrap, **arguments}
        flags = [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", value)]
        self._monkeypatch.setattr(sys, "argv", [name, *flags])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    def produce(self, topic: str, records: Sequence[Record]) -> None:
        """All records of a key are in one partition, as with any producer."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value, minute in records:
            timestamp = int(NOON_MS + minute * MINUTE_MS)
            producer.produce(topic, value, key=key, partition=ord(key[-1]) % PARTITIONS, timestamp=timestamp)
        assert producer.flush(DEADLINE_S) == 0

    def rows(self, output: str, *columns: str) -> list[tuple[Any, ...]]:
        written = self.spark.read.parquet(output).selectExpr(*columns).collect()
        return sorted((tuple(row) for row in written), key=repr)

    def place(self, name: str) -> str:
        return str(self.directory / name)


@pytest.fixture
def examples(
    spark: Any, quick_holdfast: HoldfastBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Examples]:
    before = {name: spark.conf.get(name, None) for name in SET_BY_EXAMPLES}
    yield Examples(spark, quick_holdfast.bootstrap, tmp_path, monkeypatch)
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_an_upsert_leaves_the_same_table_when_records_are_read_twice(examples: Examples, topic: str) -> None:
    # given two values of each key
    new_topic(examples.bootstrap, topic, PARTITIONS)
    old = [Record(key, f"old {key}") for key in "abcd"]
    new = [Record(key, f"new {key}") for key in "abcd"]
    table = examples.place("table")

    # when the first value, then both values are read, and then all records again, by another group
    examples.produce(topic, old)
    examples.run("upsert.py", topic=topic, group=f"{topic}-1", table=table, checkpoint=examples.place("first"))
    after_old = _delta_rows(table)
    examples.produce(topic, new)
    examples.run("upsert.py", topic=topic, group=f"{topic}-1", table=table, checkpoint=examples.place("first"))
    after_new = _delta_rows(table)
    examples.run("upsert.py", topic=topic, group=f"{topic}-2", table=table, checkpoint=examples.place("second"))

    # then each key has its last value once, and the second reading of all records changed no row
    assert after_old == [(key, f"old {key}") for key in "abcd"]
    assert after_new == [(key, f"new {key}") for key in "abcd"]
    assert _delta_rows(table) == after_new
    assert ConfluentAdmin().offsets(examples.bootstrap, f"{topic}-2", topic) == {0: 4, 1: 4}
    merges = [one["operationMetrics"] for one in DeltaTable(table).history() if one["operation"] == "MERGE"]
    changed = [(one["num_target_rows_inserted"], one["num_target_rows_updated"]) for one in reversed(merges)]
    assert changed == [(4, 0), (0, 4)]


def _delta_rows(table: str) -> list[tuple[str, str]]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["key"], row["value"]) for row in rows)


def test_windows_are_written_once_and_without_records_behind_the_watermark(examples: Examples, topic: str) -> None:
    new_topic(examples.bootstrap, topic, PARTITIONS)
    paths = {"output": examples.place("counts"), "checkpoint": examples.place("checkpoint")}
    shown = f"(unix_millis(start) - {NOON_MS}) div {MINUTE_MS} AS minute", "page", "count"

    # when the watermark arrives at minute 3
    examples.produce(topic, [Record("a", minute=0.1), Record("b", minute=0.2), Record("a", minute=0.9)])
    examples.produce(topic, [Record("a", minute=1.5), Record("b", minute=2.5), Record("b", minute=5)])
    examples.run("event_time_windows.py", topic=topic, group=f"{topic}-g", **paths)
    first = examples.rows(paths["output"], *shown)

    # and then a record is late but ahead of the watermark, one is behind it, and the watermark arrives at minute 8
    examples.produce(topic, [Record("a", minute=4.5), Record("a", minute=0.5), Record("b", minute=10)])
    examples.run("event_time_windows.py", topic=topic, group=f"{topic}-g", **paths)

    # then each complete window is there once, and the record behind the watermark is in none
    assert first == [(0, "a", 2), (0, "b", 1), (1, "a", 1), (2, "b", 1)]
    assert examples.rows(paths["output"], *shown) == [*first, (4, "a", 1), (5, "b", 1)]


def test_two_sources_in_one_group_join_each_order_with_its_payment(
    examples: Examples, quick_holdfast: HoldfastBroker, topic: str
) -> None:
    topics = {"orders": f"{topic}-orders", "payments": f"{topic}-payments"}
    for name in topics.values():
        new_topic(examples.bootstrap, name, PARTITIONS)
    paths = {"output": examples.place("paid"), "checkpoint": examples.place("checkpoint")}
    run = {**topics, **paths, "group": f"{topic}-g"}
    shown = "number", "amount", "paid"

    # given an order with a payment, one whose payment comes in the next run, and one whose payment comes too late
    examples.produce(topics["orders"], [Record("1", "10", 0), Record("2", "20", 1), Record("3", "30", 2)])
    examples.produce(topics["payments"], [Record("1", "10", 5)])
    examples.run("stream_join.py", **run)
    first = examples.rows(paths["output"], *shown)
    examples.produce(topics["payments"], [Record("2", "20", 30), Record("3", "30", 70)])
    examples.run("stream_join.py", **run)
    second = examples.rows(paths["output"], *shown)

    # when the watermarks of both topics pass the hour
    for name in topics.values():
        examples.produce(name, [Record("9", "90", 100)])
    examples.run("stream_join.py", **run)

    # then each order is there once
    assert first == [("1", 10, 10)]
    assert second == [("1", 10, 10), ("2", 20, 20)]
    assert examples.rows(paths["output"], *shown) == [*second, ("3", 30, None), ("9", 90, 90)]

    # and the group rebalanced when its two members joined, and at no restart
    assert quick_holdfast.log_text().count(f"rebalance started group={run['group']} ") == 2


def test_a_device_is_reported_once_when_its_timer_expires(examples: Examples, topic: str) -> None:
    new_topic(examples.bootstrap, topic, PARTITIONS)
    paths = {"output": examples.place("silent"), "checkpoint": examples.place("checkpoint")}
    run = {"topic": topic, "group": f"{topic}-g", **paths}
    shown = "device", "records", f"(last_ms - {NOON_MS}) / {MINUTE_MS} AS minute"

    # given three devices, none of which is silent for ten minutes
    examples.produce(
        topic, [Record("a", minute=0), Record("b", minute=1), Record("c", minute=2), Record("b", minute=3)]
    )
    examples.run("silent_devices.py", **run)
    first = examples.rows(paths["output"], *shown)

    # when two of them send again, and time goes on with one of them
    examples.produce(topic, [Record("c", minute=9), Record("a", minute=15)])
    examples.run("silent_devices.py", **run)
    second = examples.rows(paths["output"], *shown)
    examples.produce(topic, [Record("b", minute=29), Record("a", minute=24)])
    examples.run("silent_devices.py", **run)

    # then each device is reported with the records that it had sent, once per silence
    assert first == []
    assert second == [("b", 2, 3.0)]
    assert examples.rows(paths["output"], *shown) == [("b", 2, 3.0), ("c", 2, 9.0)]
