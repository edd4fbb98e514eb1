"""CreatePartitions; the expected answers are those of Apache Kafka 4.3."""

import asyncio

import pytest

from holdfast.wire.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.support.handler_broker import HandlerBroker


def grow(
    broker: HandlerBroker,
    *topics: tuple[str, int, list[list[int]] | None],
    validate_only: bool = False,
    version: int = 3,
) -> CreatePartitionsResponse:
    wanted = [
        CreatePartitionsTopic(name, count, None if ids is None else [CreatePartitionsAssignment(one) for one in ids])
        for name, count, ids in topics
    ]
    response: CreatePartitionsResponse = broker.ask(CreatePartitionsRequest(wanted, 10_000, validate_only), version)
    return response


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_stays_grown(broker: HandlerBroker, version: int) -> None:
    topic = broker.topic("orders", 2)

    response = grow(broker, ("orders", 4, [[1], [1]]), version=version)

    assert response == CreatePartitionsResponse(0, [CreatePartitionsTopicResult("orders", 0, None)])
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
    broker.restart_after_kill()
    reloaded = broker.topics.get("orders")
    assert reloaded is not None and len(reloaded.partitions) == 4


def test_validate_only_changes_nothing(broker: HandlerBroker) -> None:
    topic = broker.topic("orders", 2)

    assert grow(broker, ("orders", 4, None), validate_only=True).results[0].error_code == 0
    assert len(topic.partitions) == 2


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, 37, "Topic already has 2 partition(s)."),
        (1, None, 37, "The topic orders currently has 2 partition(s); 1 would not be an increase."),
        (-1, None, 37, "The topic orders currently has 2 partition(s); -1 would not be an increase."),
        (
            4,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (3, [], 39, "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (3, [[7]], 39, "The manual partition assignment includes broker 7, but no such broker is registered."),
        (3, [[1, 1]], 39, "The manual partition assignment includes the broker 1 more than once."),
        (3, [[]], 39, "The manual partition assignment includes an empty replica list."),
        # Kafka: -1 without a message.
        (10_003, None, 44, "Excessively large number of partitions per request."),
    ],
)
def test_a_growth_that_cannot_be_is_refused(
    broker: HandlerBroker, count: int, assignments: list[list[int]] | None, code: int, message: str
) -> None:
    topic = broker.topic("orders", 2)

    response = grow(broker, ("orders", count, assignments))

    assert response == CreatePartitionsResponse(0, [CreatePartitionsTopicResult("orders", code, message)])
    assert len(topic.partitions) == 2


def test_duplicates_and_unknown_topics_are_refused_and_the_rest_grows(broker: HandlerBroker) -> None:
    broker.topic("twice")
    topic = broker.topic("orders")

    response = grow(broker, ("twice", 2, None), ("nope", 2, None), ("orders", 2, None), ("twice", 3, None))

    assert response == CreatePartitionsResponse(
        0,
        [
            CreatePartitionsTopicResult("twice", 42, "Duplicate topic name."),
            CreatePartitionsTopicResult("nope", 3, None),
            CreatePartitionsTopicResult("orders", 0, None),
        ],
    )
    assert len(topic.partitions) == 2


def test_of_two_clients_the_one_that_wants_less_does_not_shrink_the_topic(broker: HandlerBroker) -> None:
    topic = broker.topic("orders")

    async def both() -> list[int]:
        requests = [CreatePartitionsRequest([CreatePartitionsTopic("orders", count, None)]) for count in (4, 3)]
        responses = await asyncio.gather(*(broker.answer(request, 3) for request in requests))
        return [response.results[0].error_code for response in responses]

    assert asyncio.run(both()) == [0, 37]
    assert len(topic.partitions) == 4
    broker.restart_after_kill()
    reloaded = broker.topics.get("orders")
    assert reloaded is not None and len(reloaded.partitions) == 4


@pytest.mark.parametrize("name", ["__consumer_offsets", "__group_ledger"])
def test_internal_topics_cannot_be_extended(broker: HandlerBroker, name: str) -> None:
    """In which of its partitions a group's facts are follows from how many there are."""
    topic = broker.topic(name, 2)

    (result,) = grow(broker, (name, 4, None)).results

    assert result.error_code == 17
    assert result.error_message == f"Growth of internal topic {name} is prohibited."
    assert len(topic.partitions) == 2
