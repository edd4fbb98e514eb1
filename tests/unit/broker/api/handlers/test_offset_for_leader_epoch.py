"""OffsetForLeaderEpoch; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from tests.support.handler_broker import HandlerBroker


def end_of(
    broker: HandlerBroker, name: str, index: int, epoch: int, current: int = -1, version: int = 4
) -> OffsetForLeaderEpochResponse:
    topic = OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, current, epoch)])
    response: OffsetForLeaderEpochResponse = broker.ask(OffsetForLeaderEpochRequest(topics=[topic]), version)
    return response


def one(name: str, code: int, index: int, epoch: int, end_offset: int) -> OffsetForLeaderEpochResponse:
    result = OffsetForLeaderPartitionResult(code, index, epoch, end_offset)
    return OffsetForLeaderEpochResponse(0, [OffsetForLeaderTopicResult(name, [result])])


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "answer"), [(0, (0, 3)), (1, (-1, -1)), (5, (-1, -1)), (-1, (-1, -1)), (-2, (-2, 1))]
)
def test_of_a_partition_with_records(broker: HandlerBroker, version: int, epoch: int, answer: tuple[int, int]) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000, 2000, 3000])
    topic.partitions[0].log.delete_records_before(1)

    assert end_of(broker, "orders", 0, epoch, version=version) == one("orders", 0, 0, *answer)


@pytest.mark.parametrize(("epoch", "answer"), [(0, (0, 0)), (1, (-1, -1)), (-1, (-1, -1)), (-2, (-2, 0))])
def test_of_an_empty_partition(broker: HandlerBroker, epoch: int, answer: tuple[int, int]) -> None:
    broker.topic("orders", 2)

    assert end_of(broker, "orders", 1, epoch) == one("orders", 0, 1, *answer)


@pytest.mark.parametrize(
    ("name", "index", "current", "answer"),
    [
        ("orders", 0, 0, (0, 0, 0, 0)),
        ("orders", 0, 3, (75, 0, -1, -1)),
        ("orders", 0, -2, (74, 0, -1, -1)),
        ("orders", 9, -1, (3, 9, -1, -1)),
        ("nope", 0, -1, (3, 0, -1, -1)),
    ],
)
def test_epochs_and_partitions_that_are_unknown(
    broker: HandlerBroker, name: str, index: int, current: int, answer: tuple[int, int, int, int]
) -> None:
    broker.topic("orders")

    assert end_of(broker, name, index, 0, current) == one(name, *answer)
