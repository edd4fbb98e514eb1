"""AlterPartitionReassignments and ListPartitionReassignments; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from holdfast.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.support.handler_broker import HandlerBroker

NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS = 0, 3, 39, 85
MANUAL = "The manual partition assignment includes"


def answered(broker: HandlerBroker, name: str, index: int, replicas: list[int] | None) -> tuple[int, str | None]:
    topics = [ReassignableTopic(name, [ReassignablePartition(index, replicas)])]
    response = broker.ask(AlterPartitionReassignmentsRequest(1000, True, topics), 1)
    ((answer,),) = (topic.partitions for topic in response.responses)
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("replicas", "code", "message"),
    [
        ([1], NONE, None),
        (None, NO_REASSIGNMENT_IN_PROGRESS, None),
        ([2], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker 2, but no such broker is registered."),
        ([1, 2], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker 2, but no such broker is registered."),
        ([3, 2], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker 2, but no such broker is registered."),
        ([1, 1, -1], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker -1, but no such broker is registered."),
        ([2, 1, 1], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} the broker 1 more than once."),
        ([], INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} an empty replica list."),
    ],
)
def test_a_partition_stays_where_it_is(
    broker: HandlerBroker, replicas: list[int] | None, code: int, message: str | None
) -> None:
    broker.topic("orders", 2)

    assert answered(broker, "orders", 1, replicas) == (code, message)


def test_what_does_not_exist_is_not_moved(broker: HandlerBroker) -> None:
    broker.topic("orders", 2)

    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert answered(broker, "nope", 0, [1]) == (unknown, "Unable to find a topic named nope.")
    assert answered(broker, "orders", 2, [1]) == (unknown, "Unable to find partition orders:2.")
    assert answered(broker, "orders", -1, None) == (unknown, "Unable to find partition orders:-1.")


@pytest.mark.parametrize(("version", "allowed"), [(0, True), (1, True), (1, False)])
def test_whether_the_number_of_replicas_may_change_is_repeated(
    broker: HandlerBroker, version: int, allowed: bool
) -> None:
    broker.topic("orders")
    topics = [ReassignableTopic("orders", [ReassignablePartition(0, [1])])]

    response = broker.ask(AlterPartitionReassignmentsRequest(1000, allowed, topics), version)
    empty = broker.ask(AlterPartitionReassignmentsRequest(1000, allowed, []), version)

    results = [ReassignableTopicResponse("orders", [ReassignablePartitionResponse(0, NONE, None)])]
    assert response == AlterPartitionReassignmentsResponse(0, allowed, NONE, None, results)
    assert empty == AlterPartitionReassignmentsResponse(0, True, NONE, "", [])


def test_a_long_request_is_answered_like_a_short_one(broker: HandlerBroker) -> None:
    broker.topic("orders")
    wanted = [ReassignablePartition(0, None), ReassignablePartition(1, None), ReassignablePartition(0, [1])]

    def ask(times: int) -> list[ReassignablePartitionResponse]:
        topics = [ReassignableTopic("orders", wanted * times)]
        (topic,) = broker.ask(AlterPartitionReassignmentsRequest(1000, True, topics), 1).responses
        return list(topic.partitions)

    assert ask(1000) == ask(1) * 1000


def test_nothing_is_ever_on_its_way(broker: HandlerBroker) -> None:
    broker.topic("orders")

    for topics in (
        None,
        [],
        [ListPartitionReassignmentsTopics("orders", [0]), ListPartitionReassignmentsTopics("no", [1])],
    ):
        response = broker.ask(ListPartitionReassignmentsRequest(1000, topics), 0)
        assert response == ListPartitionReassignmentsResponse(0, NONE, None, [])
