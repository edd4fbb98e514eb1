"""ListOffsets; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.support.handler_broker import HandlerBroker

V11 = 11
NOTHING = (0, -1, -1, -1)


def offsets(
    broker: HandlerBroker,
    *wanted: tuple[str, int, int],
    version: int = V11,
    current_leader_epoch: int = -1,
    isolation_level: int = 0,
) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopic(name, [ListOffsetsPartition(index, current_leader_epoch, timestamp)])
        for name, index, timestamp in wanted
    ]
    response: ListOffsetsResponse = broker.ask(ListOffsetsRequest(-1, isolation_level, topics), version)
    return response


def one(name: str, index: int, code: int, timestamp: int, offset: int, epoch: int) -> ListOffsetsResponse:
    answer = ListOffsetsPartitionResponse(index, code, timestamp, offset, epoch)
    return ListOffsetsResponse(0, [ListOffsetsTopicResponse(name, [answer])])


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (0, -1, 0, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, NOTHING),
        (-4, (0, -1, 0, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (-7, (35, -1, -1, -1)),
        (0, NOTHING),
        (9_999_999_999_999, NOTHING),
    ],
)
def test_of_an_empty_partition(broker: HandlerBroker, timestamp: int, answer: tuple[int, int, int, int]) -> None:
    broker.topic("orders")

    assert offsets(broker, ("orders", 0, timestamp)) == one("orders", 0, *answer)


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (0, -1, 4, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, 5000, 3, 0)),
        (-4, (0, -1, 0, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (-99, (35, -1, -1, -1)),
        (0, (0, 1000, 0, 0)),
        (1000, (0, 1000, 0, 0)),
        (1001, (0, 3000, 1, 0)),
        (2500, (0, 3000, 1, 0)),
        (3001, (0, 5000, 3, 0)),
        (5001, NOTHING),
    ],
)
def test_of_four_records(broker: HandlerBroker, timestamp: int, answer: tuple[int, int, int, int]) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000, 3000, 2000])
    broker.append(topic, [5000])

    assert offsets(broker, ("orders", 0, timestamp)) == one("orders", 0, *answer)
    assert offsets(broker, ("orders", 0, timestamp), isolation_level=1) == one("orders", 0, *answer)


@pytest.mark.parametrize(("timestamp", "answer"), [(-2, (0, -1, 1, 0)), (0, (0, 3000, 1, 0))])
def test_records_before_the_start_are_not_found(
    broker: HandlerBroker, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000, 3000, 2000])
    topic.partitions[0].log.delete_records_before(1)

    assert offsets(broker, ("orders", 0, timestamp)) == one("orders", 0, *answer)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("timestamp", "answer"), [(-1, (-1, 1)), (-2, (-1, 0)), (500, (1000, 0))])
def test_before_v4_there_are_no_leader_epochs(
    broker: HandlerBroker, version: int, timestamp: int, answer: tuple[int, int]
) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000])

    assert offsets(broker, ("orders", 0, timestamp), version=version) == one("orders", 0, 0, *answer, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_each_question_has_its_first_version(broker: HandlerBroker, timestamp: int, since: int) -> None:
    broker.topic("orders")

    def code(version: int) -> int:
        return offsets(broker, ("orders", 0, timestamp), version=version).topics[0].partitions[0].error_code

    assert [code(version) for version in range(1, 12)] == [35] * (since - 1) + [0] * (12 - since)


@pytest.mark.parametrize(("current_leader_epoch", "code"), [(-2, 74), (-1, 0), (0, 0), (5, 75)])
def test_a_reader_that_knows_another_leader_is_fenced(
    broker: HandlerBroker, current_leader_epoch: int, code: int
) -> None:
    broker.topic("orders")

    response = offsets(broker, ("orders", 0, -5), current_leader_epoch=current_leader_epoch)

    assert response == one("orders", 0, code, -1, -1, -1)


@pytest.mark.parametrize(
    ("name", "index", "timestamp", "code"),
    [("nope", 0, -1, 3), ("orders", 9, -1, 3), ("orders", -1, -1, 3), ("nope", 0, -99, 35)],
)
def test_what_is_not_there(broker: HandlerBroker, name: str, index: int, timestamp: int, code: int) -> None:
    broker.topic("orders")

    assert offsets(broker, (name, index, timestamp)) == one(name, index, code, -1, -1, -1)


def test_partitions_of_a_topic_come_together_and_one_asked_for_twice_is_refused(broker: HandlerBroker) -> None:
    topic = broker.topic("orders", 2)
    broker.append(topic, [1000])

    response = offsets(broker, ("orders", 1, -1), ("orders", 0, 0), ("orders", 1, -2))

    answers = [ListOffsetsPartitionResponse(1, 42), ListOffsetsPartitionResponse(0, 0, 1000, 0, 0)]
    assert response == ListOffsetsResponse(0, [ListOffsetsTopicResponse("orders", answers)])


def test_an_isolation_level_that_is_none_is_refused(broker: HandlerBroker) -> None:
    broker.topic("orders")

    assert offsets(broker, ("orders", 0, -1), isolation_level=9) == one("orders", 0, -1, -1, -1, -1)
