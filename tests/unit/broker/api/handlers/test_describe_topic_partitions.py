"""DescribeTopicPartitions; the expected answers are those of Apache Kafka 4.3."""

from collections.abc import Callable, Mapping

import pytest

from holdfast.broker.authorization.visibility import EVERYTHING
from holdfast.wire.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from tests.support.handler_broker import HandlerBroker

Pages = list[tuple[str, list[int]]]


def ask(
    broker: HandlerBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    begin = None if cursor is None else Cursor(*cursor)
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, begin)
    response: DescribeTopicPartitionsResponse = broker.ask(request, 0)
    return response


def shown(response: DescribeTopicPartitionsResponse) -> Pages:
    assert not any(topic.error_code for topic in response.topics)
    return [(topic.name or "", [one.partition_index for one in topic.partitions]) for topic in response.topics]


def test_a_topic_is_shown_with_its_partitions(broker: HandlerBroker) -> None:
    orders = broker.topic("orders", 2)

    partitions = [DescribeTopicPartitionsResponsePartition(0, index, 1, 0, [1], [1], [], [], []) for index in (0, 1)]
    topic = DescribeTopicPartitionsResponseTopic(
        0, "orders", orders.id, False, partitions, EVERYTHING.topic_operations("")
    )
    assert ask(broker, "orders") == DescribeTopicPartitionsResponse(0, [topic], None)


def test_topics_come_in_the_order_of_their_names_and_each_once(broker: HandlerBroker) -> None:
    for name in ("c", "a", "b"):
        broker.topic(name)

    assert shown(ask(broker, "c", "a", "c")) == [("a", [0]), ("c", [0])]
    assert shown(ask(broker)) == [("a", [0]), ("b", [0]), ("c", [0])]


def test_unknown_names_are_returned_in_their_order(broker: HandlerBroker) -> None:
    broker.topic("orders")

    answer = ask(broker, "orders", "nope", "a b", "__consumer_offsets")

    assert [(one.name, one.error_code, one.is_internal, len(one.partitions)) for one in answer.topics] == [
        ("__consumer_offsets", 3, True, 0),
        ("a b", 17, False, 0),
        ("nope", 3, False, 0),
        ("orders", 0, False, 1),
    ]


@pytest.mark.parametrize("asked", [(), ("a", "b", "c")])
@pytest.mark.parametrize(
    ("limit", "pages"),
    [
        (2000, [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]),
        (5, [[("a", [0, 1]), ("b", [0, 1, 2])], [("c", [0])]]),
        (4, [[("a", [0, 1]), ("b", [0, 1])], [("b", [2]), ("c", [0])]]),
        (2, [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]),
        (0, [[("a", [0])], [("a", [1])], [("b", [0])], [("b", [1])], [("b", [2])], [("c", [0])]]),
    ],
)
def test_pages_hold_what_they_may_and_lead_to_the_next(
    broker: HandlerBroker, asked: tuple[str, ...], limit: int, pages: list[Pages]
) -> None:
    for name, partitions in (("a", 2), ("b", 3), ("c", 1)):
        broker.topic(name, partitions)

    seen: list[Pages] = []
    cursor: tuple[str, int] | None = None
    for _ in pages:
        answer = ask(broker, *asked, limit=limit, cursor=cursor)
        seen.append(shown(answer))
        following = answer.next_cursor
        cursor = None if following is None else (following.topic_name, following.partition_index)

    assert seen == pages
    assert cursor is None


def test_the_broker_has_a_limit_of_its_own(broker_with: Callable[[Mapping[str, str]], HandlerBroker]) -> None:
    broker = broker_with({"max.request.partition.size.limit": "2"})
    broker.topic("orders", 3)

    answer = ask(broker, "orders", limit=1000)

    assert shown(answer) == [("orders", [0, 1])]
    assert answer.next_cursor == Cursor("orders", 2)


def test_a_cursor_may_point_behind_what_there_is(broker: HandlerBroker) -> None:
    broker.topic("a", 2)
    broker.topic("c")

    assert shown(ask(broker, cursor=("a", 9))) == [("a", []), ("c", [0])]
    assert shown(ask(broker, cursor=("b", 9))) == [("c", [0])]


@pytest.mark.parametrize("cursor", [("orders", -1), ("another", 0), ("", 0)])
def test_a_cursor_that_points_nowhere_is_refused(broker: HandlerBroker, cursor: tuple[str, int]) -> None:
    broker.topic("orders")

    refused = DescribeTopicPartitionsResponseTopic(42, "orders")
    assert ask(broker, "orders", cursor=cursor) == DescribeTopicPartitionsResponse(0, [refused], None)
