"""`Aggregate` and `read_totals` on a real Spark and real brokers: the totals equal those of a batch over the topic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from holdfast.client.errors import ConfigError
from holdfast.spark import Aggregate, read_totals
from holdfast.spark.pipelines.aggregate.aggregate_query import AggregateBatch
from holdfast.spark.pipelines.aggregate.errors import SettingsMismatch, SumOverflow
from holdfast.spark.pipelines.errors import Damaged, DataLoss, TooNew, Unwritable
from holdfast.spark.pipelines.location import Location
from tests.client_compat.servers import Server
from tests.groups.topics import committed
from tests.spark.count_checks import total_ends
from tests.spark.full_disk_fixture import full_disk
from tests.spark.records import new_topic
from tests.spark.streaming_queries import OFTEN, QUICK_QUERY, await_assignments
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.s3_emulator import s3_emulator

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PARTITIONS, COUNT, KEYS = 3, 3_000, 100
NOW = {"availableNow": True}
AMOUNT = "CAST(CAST(value AS STRING) AS BIGINT)"
StartAggregate = Callable[..., Aggregate]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "totals"


@pytest.fixture
def aggregate(
    spark: Any, server: Server, group: str, topic: str, state: Path, tmp_path: Path, ending: ExitStack
) -> StartAggregate:
    """Make a query of the test's group and topic; it ends with the test."""

    def make(instance: str | None = "totals-1", batches: list[AggregateBatch] | None = None, **given: Any) -> Aggregate:
        wanted = {"kafka.bootstrap.servers": server.bootstrap, "kafka.group.id": group, "subscribe": topic}
        if instance is not None:
            wanted["kafka.group.instance.id"] = instance
        own = {"amount": AMOUNT, "cache": tmp_path / "cache", "path": state, **given}
        options = {**QUICK_QUERY, **wanted, **own.pop("options", {})}
        on_batch = None if batches is None else batches.append
        query = Aggregate(spark, own.pop("path"), options, on_batch=on_batch, **own)
        ending.callback(query.stop)
        return query

    return make


def numbers(server: Server, topic: str, of: range, *, minutes: int = 5) -> None:
    """Record n has the value n, the key n % KEYS (or none), and is in minute n % minutes."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
    for number in of:
        key = None if number % KEYS == 7 else f"key {number % KEYS}"
        at_ms = 1_794_787_200_000 + number % minutes * 60_000
        producer.produce(topic, str(number), key=key, partition=number % PARTITIONS, timestamp=at_ms)
    assert producer.flush(60) == 0


def recount(spark: Any, server: Server, topic: str, window: str | None = None) -> list[tuple[Any, ...]]:
    """Of all that the topic holds, by Spark's own aggregation over a batch."""
    from pyspark.sql import functions as f

    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    rows = spark.read.format("holdfast").options(**options).load().selectExpr("*", f"{AMOUNT} AS amount")
    by = ["topic", "partition", "key"]
    if window is not None:
        rows, by = rows.withColumn("window", f.window("timestamp", window).start), [*by, "window"]
    last = f.max_by(f.struct("value", "timestamp", "offset"), "offset").alias("l")
    totals = rows.groupBy(*by).agg(f.count("*").alias("count"), f.sum("amount").alias("sum"), last)
    return as_rows(totals.selectExpr(*by, "count", "sum", "l.value", "l.timestamp", "l.offset"))


def as_rows(totals: Any) -> list[tuple[Any, ...]]:
    rows = [tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in totals.collect()]
    return sorted(rows, key=str)


def test_totals_are_those_of_a_batch_over_the_topic(
    spark: Any, server: Server, topic: str, group: str, state: Path, aggregate: StartAggregate
) -> None:
    # given
    new_topic(server.bootstrap, topic, PARTITIONS)
    numbers(server, topic, range(COUNT))
    batches: list[AggregateBatch] = []

    # when it is counted in several batches, by a query that is then started again for more
    aggregate(batches=batches, options={"maxOffsetsPerTrigger": 700}).start(**NOW).wait(60)
    numbers(server, topic, range(COUNT, COUNT + 500))
    again: list[AggregateBatch] = []
    aggregate(batches=again).start(**NOW).wait(60)

    # then
    totals = read_totals(spark, state, [topic])
    assert totals.columns == [
        *("topic", "partition", "key", "count", "sum", "last"),
        *("last_timestamp", "last_offset"),
    ]
    assert as_rows(totals) == recount(spark, server, topic)
    assert sum(batch.aggregated.records for batch in batches) == COUNT
    assert len(batches) >= COUNT // 700
    assert sum(batch.aggregated.loaded_bytes for batch in batches + again) == 0, "a static member loads nothing"
    assert sum(committed(server, group, topic).values()) == COUNT + 500


def test_totals_in_s3_are_those_of_a_batch_over_the_topic(
    spark: Any, quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    new_topic(quick_holdfast.bootstrap, topic, PARTITIONS)
    numbers(quick_holdfast, topic, range(COUNT))
    options = {"kafka.bootstrap.servers": quick_holdfast.bootstrap, "kafka.group.id": group, "subscribe": topic}
    with s3_emulator() as s3:
        path, own = f"s3://{s3.new_bucket()}/totals", {"amount": AMOUNT, "storage_options": s3.options}

        Aggregate(spark, path, options, cache=tmp_path, **own).start(**NOW).wait(60)

        assert as_rows(read_totals(spark, path, [topic], s3.options)) == recount(spark, quick_holdfast, topic)
        missing = Aggregate(spark, "s3://no-such-bucket/totals", options, **own)
        with pytest.raises(Unwritable, match=r"the bucket no-such-bucket does not exist .*; nothing is lost"):
            missing.start(**NOW)


def test_windows_keys_and_last_values_are_what_expressions_say(
    spark: Any, server: Server, topic: str, group: str, state: Path, aggregate: StartAggregate
) -> None:
    new_topic(server.bootstrap, topic, PARTITIONS)
    numbers(server, topic, range(COUNT))

    aggregate(window="2 minutes").start(**NOW).wait(60)
    own = {"key": "offset % 2 = 0", "amount": "CAST(offset AS DOUBLE) / 2", "last": None, "path": f"{state}-own"}
    aggregate(instance="totals-2", options={"kafka.group.id": f"{group}-own"}, **own).start(**NOW).wait(60)

    windowed = read_totals(spark, state)
    assert as_rows(windowed) == recount(spark, server, topic, "2 minutes")
    half = COUNT // PARTITIONS // 2
    even, odd = sum(range(0, 2 * half, 2)) / 2, sum(range(1, 2 * half, 2)) / 2
    own_rows = read_totals(spark, f"{state}-own").select("partition", "key", "count", "sum").collect()
    of_each = [("false", half, odd), ("true", half, even)]
    assert sorted(map(tuple, own_rows)) == [(number, *row) for number in range(PARTITIONS) for row in of_each]


def test_windows_that_ended_long_ago_are_dropped_if_configured(
    spark: Any, server: Server, topic: str, group: str, state: Path, aggregate: StartAggregate
) -> None:
    # given
    new_topic(server.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for minute in (0, 1, 5, 9):
        producer.produce(topic, "1", key="k", timestamp=1_600_000_020_000 + minute * 60_000)
    assert producer.flush(60) == 0

    # when
    aggregate(window="1 minute", keep_windows="5 minutes").start(**NOW).wait(60)
    all_of_it = {"path": f"{state}-all", "options": {"kafka.group.id": f"{group}-all"}}
    aggregate(instance="totals-2", window="1 minute", **all_of_it).start(**NOW).wait(60)

    # then
    minutes = "(unix_seconds(window) - 1600000020) / 60 AS minute"
    kept, control = (read_totals(spark, path).selectExpr(minutes).collect() for path in (state, f"{state}-all"))
    assert sorted(row.minute for row in kept) == [5, 9]
    assert sorted(row.minute for row in control) == [0, 1, 5, 9]


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_a_restart_loads_no_state_in_any_static_member_and_the_control_does(
    spark: Any,
    server: Server,
    topic: str,
    group: str,
    state: Path,
    aggregate: StartAggregate,
    tmp_path: Path,
    static: bool,
) -> None:
    # given two members that share the topic, each with its assignment of the state
    new_topic(server.bootstrap, topic, PARTITIONS)
    sent = Sent(server, topic, state)

    def member(name: str) -> Aggregate:
        options = {"kafka.client.id": name, "startingOffsets": "earliest"}
        if static:  # its membership outlasts its restart, however long that takes
            options["kafka.session.timeout.ms"] = "180000"
        return aggregate(instance=name if static else None, options=options).start(**OFTEN)

    first, second = member("totals-1"), member("totals-2")
    before = await_assignments(server, group, [1, 2])
    sent.more(600)
    before_bytes = second.loaded_bytes

    # when one of them is started again
    first.stop()
    if not static:
        await_assignments(server, group, [3])
        sent.more(300)
    again = member("totals-1")
    after = await_assignments(server, group, [1, 2])
    sent.more(600)

    # then
    for one in (again, second):
        one.stop()  # a version is there before its batch is at its end, and tells what it has loaded
    loaded_bytes = again.loaded_bytes, second.loaded_bytes - before_bytes
    assert as_rows(read_totals(spark, state)) == recount(spark, server, topic)
    if static:
        assert after == before
        assert loaded_bytes == (0, 0)
        assert {path.name for path in (tmp_path / "cache").iterdir()} == {"totals-1", "totals-2"}
    else:
        assert min(loaded_bytes) > 0, "the control: what goes to the other one and comes back is loaded"
        assert list((tmp_path / "cache").iterdir()) == []


class Sent:
    """Records that are produced and then counted."""

    def __init__(self, server: Server, topic: str, state: Path) -> None:
        self._server, self._topic, self._state = server, topic, state
        self._count = 0

    def more(self, count: int) -> None:
        """Until all of them are counted."""
        numbers(self._server, self._topic, range(self._count, self._count + count))
        self._count += count
        whole = dict.fromkeys(range(PARTITIONS), self._count // PARTITIONS)
        eventually(lambda: total_ends(Location.parse(self._state)) == whole, f"{whole} counted")


def test_an_error_is_one_sentence_and_counting_continues_once_it_is_fixed(
    spark: Any, server: Server, topic: str, state: Path, aggregate: StartAggregate
) -> None:
    new_topic(server.bootstrap, topic, PARTITIONS)
    numbers(server, topic, range(300))
    aggregate().start(**NOW).wait(60)
    numbers(server, topic, range(300, 600))
    home = state / "topics" / topic / "0"
    # a version that was cut short, and one of a newer format
    version = sorted((home / "versions").iterdir())[-1]
    whole = version.read_bytes()
    for bad, error, said in (
        (whole[:50], Damaged, "is no version of a state"),
        (whole.replace(b'"format":1', b'"format":2'), TooNew, "has format 2, and this version of Holdfast knows 1"),
    ):
        version.write_bytes(bad)
        with pytest.raises(error, match=said):
            aggregate().start(**NOW).wait(60)
        with pytest.raises(error, match=said):
            read_totals(spark, state)
    version.write_bytes(whole)
    # a directory in which the executors cannot write
    (home / "runs").rename(home / "elsewhere")
    (home / "runs").symlink_to("/dev/full")
    with pytest.raises(Unwritable, match="nothing is lost"):
        aggregate().start(**NOW).wait(60)
    (home / "runs").unlink()
    (home / "elsewhere").rename(home / "runs")

    aggregate().start(**NOW).wait(60)

    assert as_rows(read_totals(spark, state)) == recount(spark, server, topic)


def test_a_full_disk_is_reported_and_the_rest_is_counted_when_there_is_room(
    spark: Any, server: Server, topic: str, state: Path, aggregate: StartAggregate
) -> None:
    new_topic(server.bootstrap, topic, PARTITIONS)
    numbers(server, topic, range(30))
    aggregate().start(**NOW).wait(60)
    numbers(server, topic, range(30, 60))

    no_room = r"there is no room left for .*totals .*; nothing is lost"
    with full_disk(state / "topics" / topic / "0" / "runs"), pytest.raises(Unwritable, match=no_room):
        aggregate().start(**NOW).wait(60)
    aggregate().start(**NOW).wait(60)

    assert as_rows(read_totals(spark, state)) == recount(spark, server, topic)


def test_an_overflowing_sum_and_a_gap_are_reported(
    spark: Any, server: Server, topic: str, group: str, state: Path, aggregate: StartAggregate
) -> None:
    new_topic(server.bootstrap, topic, PARTITIONS)
    numbers(server, topic, range(30))
    aggregate().start(**NOW).wait(60)
    with pytest.raises(SumOverflow, match=r"for the key None does not fit into 64 bits"):
        huge = {"key": "CAST(NULL AS STRING)", "amount": f"{2**62}", "path": f"{state}-huge"}
        aggregate(options={"kafka.group.id": f"{group}-huge"}, **huge).start(**NOW).wait(60)
    numbers(server, topic, range(30, 60))
    later = {"kafka.group.id": f"{group}-later", "startingOffsets": f'{{"{topic}": {{"0": 12, "1": 10, "2": 10}}}}'}
    with pytest.raises(DataLoss, match=rf"{topic}-0 is counted up to 10, and the batch begins at 12"):
        aggregate(instance="later", options=later).start(**NOW).wait(60)


def test_states_that_cannot_be_are_refused(
    spark: Any, server: Server, topic: str, state: Path, aggregate: StartAggregate
) -> None:
    new_topic(server.bootstrap, topic, PARTITIONS)
    with pytest.raises(ConfigError, match="a state needs a directory that driver and executors share, or S3"):
        aggregate(path="gs://bucket/totals")
    with pytest.raises(ConfigError, match="aggregate does not support the option minPartitions"):
        aggregate(options={"minPartitions": 10})
    with pytest.raises(ConfigError, match=r"amount 'prize' cannot be computed from the columns of the source: .*prize"):
        aggregate(amount="prize").start(**NOW)
    with pytest.raises(ConfigError, match=r"amount 'value' is of type binary: cast it to BIGINT"):
        aggregate(amount="value").start(**NOW)
    with pytest.raises(ConfigError, match="there is no such state"):
        read_totals(spark, state)
    aggregate().start(**NOW).wait(60)
    with pytest.raises(SettingsMismatch, match=r"created with other settings \(window_us None there, 60000000 here\)"):
        aggregate(window="1 minute").start(**NOW)
    assert read_totals(spark, state).collect() == []
