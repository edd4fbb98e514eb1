"""DescribeProducers; the expected answers are those of Apache Kafka 4.3."""

import threading

import pytest

from holdfast.broker.storage.topics import Topic
from holdfast.log import PartitionLog
from holdfast.wire.apis.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from holdfast.wire.batch import batches
from holdfast.wire.records import Record, encode_batch
from tests.support.handler_broker import NOW_MS, HandlerBroker

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC = 3, 17


def append(topic: Topic, producer_id: int, epoch: int, sequence: int, timestamp: int, count: int = 2) -> None:
    records = [Record(number, timestamp + number, None, b"value") for number in range(count)]
    encoded = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    topic.partitions[0].log.append(list(batches(bytearray(encoded))), leader_epoch=0, now_ms=NOW_MS)


def described(broker: HandlerBroker, *topics: tuple[str, list[int]]) -> list[TopicResponse]:
    request = DescribeProducersRequest([TopicRequest(name, indexes) for name, indexes in topics])
    return list(broker.ask(request, 0).topics)


def test_each_producer_has_its_last_sequence_and_timestamp(broker: HandlerBroker) -> None:
    topic = broker.topic("orders", 2)
    append(topic, 77, 3, 0, 1000)
    append(topic, 78, 0, 5, 2000)
    append(topic, 77, 3, 2, 3000, count=3)

    (found,) = described(broker, ("orders", [0, 1]))

    first, second = found.partitions
    assert first == PartitionResponse(
        0, 0, None, [ProducerState(77, 3, 4, 3002, -1, -1), ProducerState(78, 0, 6, 2001, -1, -1)]
    )
    assert second == PartitionResponse(1, 0, None, [])


def test_more_producers_than_are_looked_at_in_one_go(broker: HandlerBroker) -> None:
    topic = broker.topic("orders")
    for producer_id in range(2500):
        append(topic, producer_id, 0, 0, 1000, count=1)

    ((answer,),) = (found.partitions for found in described(broker, ("orders", [0])))

    assert [producer.producer_id for producer in answer.active_producers] == list(range(2500))


def test_a_log_at_rest_is_woken_in_another_thread(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    append(broker.topic("orders"), 77, 3, 0, 1000)
    before = described(broker, ("orders", [0]))
    broker.restart()
    woken_in: list[threading.Thread] = []
    wake = PartitionLog._load

    def watched(log: PartitionLog) -> None:
        woken_in.append(threading.current_thread())
        wake(log)

    monkeypatch.setattr(PartitionLog, "_load", watched)

    assert described(broker, ("orders", [0])) == before

    assert len(woken_in) == 1
    assert woken_in[0] is not threading.main_thread()


def test_what_does_not_exist_has_no_producers(broker: HandlerBroker) -> None:
    broker.topic("orders")

    found = described(broker, ("nope", [0]), ("a b", [0]), ("", [1]), ("orders", [1, -1]))

    unknown = UNKNOWN_TOPIC_OR_PARTITION
    spaces = "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    assert [(one.error_code, one.error_message) for topic in found for one in topic.partitions] == [
        (unknown, "This server does not host this topic-partition."),
        (INVALID_TOPIC, f"Topic name is invalid: {spaces}"),
        (INVALID_TOPIC, "Topic name is invalid: the empty string is not allowed"),
        (unknown, None),
        (unknown, None),
    ]


def test_a_partition_that_is_named_again_is_described_once(broker: HandlerBroker) -> None:
    append(broker.topic("orders", 2), 77, 3, 0, 1000)

    (found,) = described(broker, ("orders", [0, 0, 1]), ("orders", [1, 0]))

    assert [one.partition_index for one in found.partitions] == [0, 1]
