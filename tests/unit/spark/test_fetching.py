"""What an executor reads: every record of its ranges and no other, and a plain word where records are missing."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.client.errors import ConfigError, ConnectionFailed
from holdfast.spark import arrow, executor_consumers, range_reader
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.consumer_reader import ConsumerReader
from holdfast.spark.fetching import read_ranges
from holdfast.spark.range_consumer import RangeConsumer
from holdfast.spark.watermarks import DataLoss
from tests.client_compat.client import DEADLINE_S, Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

CLIENT = ConfluentClient()
EACH = 40
LIBRDKAFKA = {"socket_keepalive_enable": "false"}


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["bytes", "librdkafka"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How records are read, as settings for `read`: an option that only librdkafka has makes it read them."""
    return {"bytes": {}, "librdkafka": LIBRDKAFKA}[request.param]


@pytest.fixture(autouse=True)
def _no_consumer_is_left() -> Iterator[None]:
    yield
    executor_consumers.close_all()


def read(
    server: Server, *ranges: OffsetRange, headers: bool = False, fail: bool = True, **settings: Any
) -> list[dict[str, Any]]:
    kafka = {"bootstrap.servers": server.bootstrap} | {
        name.replace("_", "."): str(value) for name, value in settings.items()
    }
    batches = read_ranges(ranges, kafka, include_headers=headers, fail_on_data_loss=fail)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(rows: Sequence[dict[str, Any]], partition: int = 0) -> list[int]:
    return [row["offset"] for row in rows if row["partition"] == partition]


def fill(server: Server, topic: str, partitions: int = 1, each: int = EACH) -> None:
    CLIENT.create_topic(server.bootstrap, topic, partitions)
    for partition in range(partitions):
        CLIENT.produce(server.bootstrap, topic, [Record(b"%d" % number) for number in range(each)], partition)


def delete_before(server: Server, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    deleted.result(DEADLINE_S)


# -- records -----------------------------------------------------------------------------------------------------------


def test_every_column_says_what_was_produced(server: Server, topic: str, way: dict[str, Any]) -> None:
    CLIENT.create_topic(server.bootstrap, topic, 1, {"retention.ms": "-1"})
    stored = [
        Record(b"value", b"key", (("a", b"1"), ("a", None), ("", b"")), 1_700_000_000_123),
        Record(None, None, (), 5),
        Record(b"", b"", (), 1_700_000_000_000),
        Record(os.urandom(900_000), b"large", (), 1_600_000_000_000),
    ]
    CLIENT.produce(server.bootstrap, topic, stored)

    rows = read(server, OffsetRange(topic, 0, 0, len(stored)), headers=True, **way)

    assert [
        (row["key"], row["value"], row["timestamp"].timestamp(), row["headers"], row["offset"]) for row in rows
    ] == [
        (
            record.key,
            record.value,
            (record.timestamp_ms or 0) / 1000,
            [{"key": name, "value": value} for name, value in record.headers] or None,
            number,
        )
        for number, record in enumerate(stored)
    ]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}


def test_a_log_append_timestamp_is_marked_as_such(server: Server, topic: str, way: dict[str, Any]) -> None:
    CLIENT.create_topic(server.bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    before = time.time()
    CLIENT.produce(server.bootstrap, topic, [Record(b"x", timestamp_ms=1)])

    (row,) = read(server, OffsetRange(topic, 0, 0, 1), **way)

    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() == pytest.approx(before, abs=60)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_types_are_those_that_spark_demands(include_headers: bool) -> None:
    from pyspark.sql import types as st
    from pyspark.sql.pandas.types import to_arrow_schema

    header = st.StructType([st.StructField("key", st.StringType()), st.StructField("value", st.BinaryType())])
    wanted = st.StructType(
        [
            st.StructField("key", st.BinaryType()),
            st.StructField("value", st.BinaryType()),
            st.StructField("topic", st.StringType()),
            st.StructField("partition", st.IntegerType()),
            st.StructField("offset", st.LongType()),
            st.StructField("timestamp", st.TimestampType()),
            st.StructField("timestampType", st.IntegerType()),
            *([st.StructField("headers", st.ArrayType(header))] if include_headers else []),
        ]
    )

    assert arrow.schema(include_headers).equals(to_arrow_schema(wanted, timezone="UTC"))


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_ranges_of_several_partitions_are_read_together_and_each_exactly(
    server: Server, topic: str, way: dict[str, Any]
) -> None:
    fill(server, topic, partitions=4)
    ranges = [OffsetRange(topic, 0, 0, 40), OffsetRange(topic, 1, 7, 8), OffsetRange(topic, 2, 5, 5)]
    ranges += [OffsetRange(topic, 3, 3, 13), OffsetRange(topic, 3, 13, 21)]

    rows = read(server, *ranges, **way)

    assert {number: offsets(rows, number) for number in range(4)} == {
        0: list(range(40)),
        1: [7],
        2: [],
        3: list(range(3, 21)),
    }
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)


def test_batches_are_bounded_in_rows_and_in_bytes(quick_holdfast: HoldfastBroker, topic: str) -> None:
    many, large = f"{topic}-many", f"{topic}-large"
    fill(quick_holdfast, many, each=25_000)
    CLIENT.create_topic(quick_holdfast.bootstrap, large, 1)
    CLIENT.produce(quick_holdfast.bootstrap, large, [Record(bytes(500_000))] * 120)
    kafka = {"bootstrap.servers": quick_holdfast.bootstrap}

    def batches(of: str, end: int) -> list[Any]:
        return list(read_ranges([OffsetRange(of, 0, 0, end)], kafka, include_headers=False, fail_on_data_loss=True))

    of_many, of_large = batches(many, 25_000), batches(large, 120)

    assert [batch.num_rows for batch in of_many] == [arrow.MAX_ROWS, arrow.MAX_ROWS, 5_000]
    assert sum(batch.num_rows for batch in of_large) == 120
    # The first is taken before it is known how large the records are.
    assert all(batch.nbytes <= arrow.MAX_BYTES + 1_000_000 for batch in of_large[1:])
    assert len(of_large) > 1


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_a_range_that_ends_in_markers_and_aborted_records_ends(
    quick_kafka: Server, topic: str, commits: bool, way: dict[str, Any]
) -> None:
    fill(quick_kafka, topic, each=10)
    producer = Producer({"bootstrap.servers": quick_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(10, 15):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
    # 16 is the end, and 15 the marker.
    began = time.monotonic()

    committed = offsets(read(quick_kafka, OffsetRange(topic, 0, 0, 16), **way))
    marker_alone = read(quick_kafka, OffsetRange(topic, 0, 15, 16), **way)
    uncommitted = offsets(read(quick_kafka, OffsetRange(topic, 0, 0, 16), isolation_level="read_uncommitted", **way))
    CLIENT.produce(quick_kafka.bootstrap, topic, [Record(b"behind")])
    in_the_middle = offsets(read(quick_kafka, OffsetRange(topic, 0, 9, 16), **way))

    assert committed == list(range(15 if commits else 10))
    assert marker_alone == []
    assert uncommitted == list(range(15))
    assert in_the_middle == ([9, 10, 11, 12, 13, 14] if commits else [9])
    assert time.monotonic() - began < 30


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_range_that_reaches_into_an_open_transaction_waits_for_its_end(
    quick_kafka: Server, topic: str, way: dict[str, Any]
) -> None:
    """What is not committed yet is not lost: to pass over it would be."""
    fill(quick_kafka, topic, each=10)
    producer = Producer({"bootstrap.servers": quick_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"not yet", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    wanted = OffsetRange(topic, 0, 0, 11)

    with pytest.raises(ConnectionFailed, match=f"{topic}-0 from 10 on for 8 s .a transaction is open that began at 10"):
        read(quick_kafka, wanted, fail=False, default_api_timeout_ms=8_000, **way)
    rows: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: rows.extend(read(quick_kafka, wanted, fail=False, **way)))
    reading.start()
    reading.join(1.0)
    assert reading.is_alive()
    producer.commit_transaction(DEADLINE_S)
    reading.join(DEADLINE_S)

    assert offsets(rows) == list(range(11))


class SlowConsumer:
    """Of a broker that answers whatever it is asked, but not a fetch."""

    api_timeout_s = 0.3
    last_error = ""

    def assign(self, positions: Any) -> None: ...

    def check(self) -> None: ...

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        return []

    def poll(self, timeout_s: float) -> None:
        time.sleep(0.01)

    def partitions_of(self, topic: str, timeout_s: float) -> list[int]:
        return [0]

    def bounds(self, where: Any, timeout_s: float) -> tuple[int, int]:
        return 0, 10


def test_where_the_committed_records_end_is_not_the_end_before_a_fetch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the records of an open transaction would be taken for lost if the first fetch is slow."""
    monkeypatch.setattr(range_reader, "PROBE_AFTER_S", 0.0)
    consumer: Any = SlowConsumer()
    reading = ConsumerReader(consumer, [OffsetRange("t", 0, 10, 11)], include_headers=False, fail_on_data_loss=True)

    with pytest.raises(ConnectionFailed, match="nothing could be read of t-0 from 10 on"):
        list(reading.batches())


@pytest.mark.real
@pytest.mark.timeout(300)
def test_compacted_records_are_not_waited_for(quick_kafka: Server, topic: str, way: dict[str, Any]) -> None:
    """What compaction left of offsets 0 to 19 is the last one of each key."""
    configs = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    CLIENT.create_topic(quick_kafka.bootstrap, topic, 1, {**configs, "max.compaction.lag.ms": "100"})
    CLIENT.produce(
        quick_kafka.bootstrap, topic, [Record(b"%d" % number, b"k%d" % (number % 2)) for number in range(20)]
    )

    def compacted() -> list[int]:
        CLIENT.produce(quick_kafka.bootstrap, topic, [Record(b"x", b"other")])  # so that the segment is rolled
        return offsets(read(quick_kafka, OffsetRange(topic, 0, 0, 20), **way))

    eventually(lambda: compacted() == [18, 19], "the last record of each key alone", 120)
    assert read(quick_kafka, OffsetRange(topic, 0, 3, 15), **way) == []


# -- what is not there -------------------------------------------------------------------------------------------------


def test_records_that_were_deleted_are_missed_or_passed_over(
    server: Server, topic: str, caplog: pytest.LogCaptureFixture, way: dict[str, Any]
) -> None:
    fill(server, topic)
    delete_before(server, topic, 30)

    with pytest.raises(DataLoss) as raised:
        read(server, OffsetRange(topic, 0, 10, 40), **way)
    rest = read(server, OffsetRange(topic, 0, 10, 40), fail=False, **way)
    nothing = read(server, OffsetRange(topic, 0, 10, 20), fail=False, **way)

    assert f"records 10 to 30 of {topic}-0 are lost (the partition now has 30 to 40" in str(raised.value)
    assert "failOnDataLoss=false" in str(raised.value)
    assert offsets(rest) == list(range(30, 40))
    assert nothing == []
    assert f"records 10 to 20 of {topic}-0 are lost" in caplog.text


@pytest.mark.parametrize("start", [20, 40, 45])
def test_a_range_beyond_the_end_of_the_partition_does_not_wait_for_it(
    server: Server, topic: str, start: int, way: dict[str, Any]
) -> None:
    fill(server, topic)
    began = time.monotonic()

    with pytest.raises(DataLoss, match=f"records {max(start, 40)} to 50 of {topic}-0 are lost .*now has 0 to 40"):
        read(server, OffsetRange(topic, 0, start, 50), **way)
    rest = read(server, OffsetRange(topic, 0, start, 50), fail=False, **way)

    assert offsets(rest) == list(range(start, 40))
    assert time.monotonic() - began < 30


def test_a_topic_that_was_deleted_is_missed_or_passed_over(
    server: Server, topic: str, monkeypatch: pytest.MonkeyPatch, way: dict[str, Any]
) -> None:
    monkeypatch.setattr(range_reader, "DELETED_AFTER_S", 0.5)
    other = f"{topic}-other"
    fill(server, topic)
    fill(server, other)
    ranges = [OffsetRange(topic, 0, 0, 40), OffsetRange(other, 0, 0, 40)]
    read(server, *ranges, **way)  # with a consumer that knows it
    CLIENT.delete_topic(server.bootstrap, topic)
    # Kafka says so before its broker has heard of it, and until then records are read.
    eventually(lambda: not (server.data_dir / f"{topic}-0").exists(), "its log is gone")
    began = time.monotonic()

    with pytest.raises(DataLoss, match=f"{topic}-0 are lost .there is no such partition any more"):
        read(server, *ranges, **way)
    rest = read(server, *ranges, fail=False, **way)

    assert [(row["topic"], row["offset"]) for row in rest] == [(other, number) for number in range(40)]
    assert time.monotonic() - began < 30


def test_a_broker_that_comes_back_is_waited_for(topic: str, way: dict[str, Any]) -> None:
    with HoldfastBroker() as broker:
        fill(broker, topic, each=200)
        assert len(read(broker, OffsetRange(topic, 0, 0, 100), **way)) == 100
        broker.kill()
        rows: list[dict[str, Any]] = []
        reading = threading.Thread(target=lambda: rows.extend(read(broker, OffsetRange(topic, 0, 50, 200), **way)))

        reading.start()
        reading.join(1.0)
        assert reading.is_alive()
        broker.start()
        reading.join(DEADLINE_S)

        assert offsets(rows) == list(range(50, 200))


def test_a_broker_that_stays_away_is_reported_in_one_sentence(topic: str, way: dict[str, Any]) -> None:
    with HoldfastBroker() as broker:
        fill(broker, topic)
        settings: dict[str, Any] = {"default_api_timeout_ms": 8_000}
        read(broker, OffsetRange(topic, 0, 0, 40), **settings, **way)
        broker.kill()
        began = time.monotonic()

        with pytest.raises(ConnectionFailed, match=f"nothing could be read of {topic}-0 from 0 on for 8 s .*refused"):
            read(broker, OffsetRange(topic, 0, 0, 40), **settings, **way)
        assert time.monotonic() - began < 40


@pytest.mark.parametrize("order", [1, -1], ids=["first the broker's own", "first that all are down"])
def test_the_brokers_error_is_reported_whichever_of_librdkafkas_errors_is_last(order: int) -> None:
    refused = KafkaError(KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused")
    all_down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    consumer = RangeConsumer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        for error in (refused, all_down)[::order]:
            consumer._on_error(error)
        assert consumer.partitions_of("t", 0.01) is None

        assert "Connection refused" in consumer.last_error
    finally:
        consumer.close()


def test_an_unknown_setting_is_reported_by_its_option(quick_holdfast: HoldfastBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.'.*'fetch.max.bites'.*did you mean 'fetch.max.bytes'"):
        read(quick_holdfast, OffsetRange(topic, 0, 0, 1), fetch_max_bites=1)


# -- consumers that are kept -------------------------------------------------------------------------------------------


def connections(server: Server) -> set[str]:
    """Those of this process to the broker, by our port."""
    port = f":{int(server.bootstrap.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # other threads close theirs meanwhile
            ours.add(str(path.readlink()))
    return {line[1] for line in lines if line[2].endswith(port) and line[3] == "01" and f"socket:[{line[9]}]" in ours}


def test_connections_are_kept_from_batch_to_batch(topic: str) -> None:
    with HoldfastBroker() as broker:
        fill(broker, topic, partitions=2)
        read(broker, OffsetRange(topic, 0, 0, 10))
        first = connections(broker)

        for start in range(10):
            read(broker, OffsetRange(topic, start % 2, start, start + 5))
        reused = connections(broker)
        read(broker, OffsetRange(topic, 0, 0, 10), client_id="another")
        another = connections(broker)

        assert first
        assert reused == first
        assert another > first  # the control: other settings, other connections
        for number in range(2 * executor_consumers.MAX_IDLE):
            read(broker, OffsetRange(topic, 0, 0, 10), client_id=f"client-{number}")
        assert len(connections(broker)) <= executor_consumers.MAX_IDLE * len(first)


def test_a_reader_that_had_enough_leaves_nothing_for_the_next_one(quick_holdfast: HoldfastBroker, topic: str) -> None:
    fill(quick_holdfast, topic, partitions=2, each=15_000)
    kafka = {"bootstrap.servers": quick_holdfast.bootstrap}
    abandoned: Any = read_ranges(
        [OffsetRange(topic, 0, 0, 15_000)], kafka, include_headers=False, fail_on_data_loss=True
    )
    assert next(abandoned).num_rows == arrow.MAX_ROWS
    beside = read(quick_holdfast, OffsetRange(topic, 1, 0, 100))  # while the other one is in the middle

    abandoned.close()
    after = [read(quick_holdfast, OffsetRange(topic, partition, 5, 25)) for partition in (0, 1)]

    assert offsets(beside, 1) == list(range(100))
    assert [offsets(rows, partition) for partition, rows in enumerate(after)] == [list(range(5, 25))] * 2


def test_a_child_by_fork_has_consumers_of_its_own(quick_holdfast: HoldfastBroker, topic: str) -> None:
    fill(quick_holdfast, topic)
    read(quick_holdfast, OffsetRange(topic, 0, 0, 10))
    of_the_parent = connections(quick_holdfast)

    child = os.fork()
    if child == 0:
        try:
            reads = offsets(read(quick_holdfast, OffsetRange(topic, 0, 0, 40))) == list(range(40))
            os._exit(0 if reads else 1)
        finally:
            os._exit(2)
    ended = eventually(lambda: [found for found in [os.waitpid(child, os.WNOHANG)] if found[0]], "the end of the child")

    assert os.waitstatus_to_exitcode(ended[0][1]) == 0
    assert len(read(quick_holdfast, OffsetRange(topic, 0, 0, 40))) == 40
    assert connections(quick_holdfast) == of_the_parent
