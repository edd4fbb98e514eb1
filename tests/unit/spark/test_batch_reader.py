"""How a batch is planned: which partitions, from where to where, and what is said where that is not possible."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import InputPartition

from holdfast.client.errors import ConfigError, ConnectionFailed, TopicError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.options import batch_options
from holdfast.spark.planning import OffsetRanges
from holdfast.spark.watermarks import DataLoss
from tests.client_compat.client import DEADLINE_S, Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.support.holdfast_broker import HoldfastBroker

CLIENT = ConfluentClient()
EACH = 20
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(quick_holdfast: HoldfastBroker) -> str:
    """A topic of two partitions with the offsets 5 to 20."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 2)
    admin = AdminClient({"bootstrap.servers": quick_holdfast.bootstrap})
    for partition in range(2):
        CLIENT.produce(quick_holdfast.bootstrap, topic, [Record(b"x")] * EACH, partition)
    for deleted in admin.delete_records([TopicPartition(topic, partition, 5) for partition in range(2)]).values():
        deleted.result(DEADLINE_S)
    return topic


def reader(broker: HoldfastBroker, **options: Any) -> BatchReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap} | {name: str(value) for name, value in options.items()}
    return BatchReader(batch_options(given))


def planned(broker: HoldfastBroker, **options: Any) -> list[OffsetRange]:
    tasks = reader(broker, **options).partitions()
    return [one for task in tasks if isinstance(task, OffsetRanges) for one in task.ranges]


def places(topic: str, **offsets: int) -> str:
    return json.dumps({topic: {name.removeprefix("p"): offset for name, offset in offsets.items()}})


def test_a_batch_reads_all_that_is_there(quick_holdfast: HoldfastBroker, filled: str) -> None:
    whole = [OffsetRange(filled, 0, 5, 20), OffsetRange(filled, 1, 5, 20)]

    assert planned(quick_holdfast, subscribe=filled) == whole
    assert planned(quick_holdfast, subscribePattern=f"{filled[:-1]}.") == whole
    assert planned(quick_holdfast, subscribePattern=filled[:-1]) == []  # a pattern is of whole names
    assert planned(quick_holdfast, assign=json.dumps({filled: [1]})) == whole[1:]
    assert len(reader(quick_holdfast, subscribe=filled, minPartitions=6).partitions()) == 6


def test_a_batch_starts_and_ends_at_the_given_offsets(quick_holdfast: HoldfastBroker, filled: str) -> None:
    starting, ending = places(filled, p0=-2, p1=20), places(filled, p0=8, p1=-1)

    assert planned(quick_holdfast, subscribe=filled, startingOffsets=starting, endingOffsets=ending) == [
        OffsetRange(filled, 0, 5, 8)
    ]


@pytest.mark.parametrize(
    ("starting", "ending", "left"),
    [(2, 10, (5, 10)), (7, 25, (7, 20)), (25, -1, None), (25, 30, None), (1, 4, None), (-2, 4, None)],
)
def test_missing_offsets_are_reported_or_skipped(
    quick_holdfast: HoldfastBroker, filled: str, starting: int, ending: int, left: tuple[int, int] | None
) -> None:
    options = {
        "assign": json.dumps({filled: [0]}),
        "startingOffsets": places(filled, p0=starting),
        "endingOffsets": places(filled, p0=ending),
    }

    with pytest.raises(DataLoss, match=f"{filled}-0 has the offsets 5 to 20, .*failOnDataLoss=false"):
        planned(quick_holdfast, **options)
    assert planned(quick_holdfast, **options, failOnDataLoss="false") == (
        [] if left is None else [OffsetRange(filled, 0, *left)]
    )


def test_offsets_of_other_partitions_than_those_that_are_read_are_refused(
    quick_holdfast: HoldfastBroker, filled: str
) -> None:
    with pytest.raises(ConfigError, match=f"startingOffsets names {filled}-2, which is not read"):
        planned(quick_holdfast, subscribe=filled, startingOffsets=places(filled, p0=5, p1=5, p2=5))
    with pytest.raises(ConfigError, match=f"startingOffsets has no offset for {filled}-1"):
        planned(quick_holdfast, subscribe=filled, startingOffsets=places(filled, p0=5))
    with pytest.raises(
        ConfigError, match=f"endingOffsets is at offset 6 of {filled}-0, and startingOffsets is after it, at 7"
    ):
        both = {"startingOffsets": places(filled, p0=7), "endingOffsets": places(filled, p0=6)}
        planned(quick_holdfast, assign=json.dumps({filled: [0]}), **both)


@pytest.fixture(scope="module")
def timed(quick_holdfast: HoldfastBroker) -> str:
    """A topic of two partitions: one record a second from START_MS on, twenty in the first and ten in the second."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    CLIENT.create_topic(quick_holdfast.bootstrap, topic, 2, {"retention.ms": "-1"})
    for partition, count in enumerate((20, 10)):
        records = [Record(b"x", timestamp_ms=START_MS + 1000 * number) for number in range(count)]
        CLIENT.produce(quick_holdfast.bootstrap, topic, records, partition)
    return topic


def test_a_batch_starts_and_ends_at_the_given_times(quick_holdfast: HoldfastBroker, timed: str) -> None:
    starting, ending = {"p0": START_MS + 1, "p1": START_MS + 5000}, {"p0": START_MS + 7000, "p1": START_MS + 99_000}
    by_partition = {
        "startingOffsetsByTimestamp": places(timed, **starting),
        "endingOffsetsByTimestamp": places(timed, **ending),
    }
    for_all = {"startingTimestamp": START_MS + 8000, "endingTimestamp": START_MS + 9500}

    assert planned(quick_holdfast, subscribe=timed, **by_partition) == [
        OffsetRange(timed, 0, 1, 7),
        OffsetRange(timed, 1, 5, 10),
    ]
    both = [OffsetRange(timed, 0, 8, 10), OffsetRange(timed, 1, 8, 10)]
    assert planned(quick_holdfast, subscribe=timed, **for_all) == both
    assert planned(quick_holdfast, subscribe=timed, **by_partition, **for_all) == both  # precedence


def test_a_partition_without_records_after_the_time_is_an_error_or_empty(
    quick_holdfast: HoldfastBroker, timed: str
) -> None:
    late = {"subscribe": timed, "startingTimestamp": START_MS + 15_000}

    with pytest.raises(
        ConfigError,
        match=rf"startingTimestamp has {START_MS + 15_000} \(2023-11-14T22:13:35\+00:00\) for {timed}-1, which has no "
        "record at or after that time: .*startingOffsetsByTimestampStrategy=latest",
    ):
        planned(quick_holdfast, **late)
    assert planned(quick_holdfast, **late, startingOffsetsByTimestampStrategy="latest") == [
        OffsetRange(timed, 0, 15, 20)
    ]


def test_a_batch_that_ends_before_its_start_is_refused(quick_holdfast: HoldfastBroker, timed: str) -> None:
    backwards = {"startingTimestamp": START_MS + 9000, "endingTimestamp": START_MS + 5000}

    with pytest.raises(ConfigError, match=r"endingTimestamp is at offset 5 .* and startingTimestamp is after it, at 9"):
        planned(quick_holdfast, subscribe=timed, **backwards)


def test_tasks_have_a_maximum_of_records(quick_holdfast: HoldfastBroker, timed: str) -> None:
    tasks = reader(quick_holdfast, subscribe=timed, maxRecordsPerPartition=8).partitions()

    assert [sum(one.end - one.start for one in task.ranges) for task in tasks if isinstance(task, OffsetRanges)] == [
        6,
        7,
        7,
        5,
        5,
    ]


def test_an_option_without_effect_is_logged(
    quick_holdfast: HoldfastBroker, timed: str, caplog: pytest.LogCaptureFixture
) -> None:
    planned(quick_holdfast, subscribe=timed)
    assert "has no effect" not in caplog.text

    planned(quick_holdfast, subscribe=timed, **{"kafkaConsumer.pollTimeoutMs": "500"})

    assert "option kafkaConsumer.pollTimeoutMs has no effect: an executor waits for records" in caplog.text


def test_missing_topics_and_brokers_are_reported(quick_holdfast: HoldfastBroker, filled: str) -> None:
    with pytest.raises(TopicError, match=r"'nowhere'.*does not exist"):
        planned(quick_holdfast, subscribe=f"{filled},nowhere")
    with pytest.raises(TopicError, match="has 2 partitions, and there is no number 2"):
        planned(quick_holdfast, assign=json.dumps({filled: [2]}))
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
        planned(quick_holdfast, subscribe=filled, **nobody)


def test_a_reader_travels_and_reads_what_it_is_handed(quick_holdfast: HoldfastBroker, filled: str) -> None:
    original = reader(quick_holdfast, subscribe=filled)

    travelled = pickle.loads(pickle.dumps(original))
    (task,) = pickle.loads(pickle.dumps(original.partitions()))
    rows = [row for batch in travelled.read(task) for row in batch.to_pylist()]

    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (partition, offset) for partition in range(2) for offset in range(5, EACH)
    ]
    assert list(travelled.read(InputPartition(None))) == []  # what Spark hands out where there is no task
