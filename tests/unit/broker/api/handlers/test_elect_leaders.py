"""ElectLeaders; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from tests.support.handler_broker import HandlerBroker

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, ELECTION_NOT_NEEDED = 3, 42, 84
NOT_NEEDED = "Leader election not needed for topic partition."


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_the_only_replica_leads_already(broker: HandlerBroker, version: int, kind: int) -> None:
    broker.topic("orders", 2)

    response = broker.ask(ElectLeadersRequest(kind, [TopicPartitions("orders", [0, 1, 0])], 1000), version)

    results = [PartitionResult(index, ELECTION_NOT_NEEDED, NOT_NEEDED) for index in (0, 1, 0)]
    assert response == ElectLeadersResponse(0, 0, [ReplicaElectionResult("orders", results)])


def test_what_does_not_exist_has_no_leader(broker: HandlerBroker) -> None:
    broker.topic("orders")
    wanted = [TopicPartitions("nope", [0]), TopicPartitions("orders", [1, -1]), TopicPartitions("orders", [])]

    response = broker.ask(ElectLeadersRequest(0, wanted, 1000), 2)

    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert response.replica_election_results == [
        ReplicaElectionResult("nope", [PartitionResult(0, unknown, "No such topic as nope")]),
        ReplicaElectionResult(
            "orders",
            [
                PartitionResult(1, unknown, "No such partition as orders-1"),
                PartitionResult(-1, unknown, "No such partition as orders--1"),
            ],
        ),
        ReplicaElectionResult("orders", []),
    ]


def test_of_all_partitions_none_gets_another_leader(broker: HandlerBroker) -> None:
    broker.topic("a", 3)
    broker.topic("b")

    response = broker.ask(ElectLeadersRequest(0, None, 1000), 2)

    assert response == ElectLeadersResponse(0, 0, [ReplicaElectionResult("a"), ReplicaElectionResult("b")])


@pytest.mark.parametrize("kind", [2, -1])
def test_an_election_of_a_kind_that_is_not_known(broker: HandlerBroker, kind: int) -> None:
    broker.topic("orders")

    named = broker.ask(ElectLeadersRequest(kind, [TopicPartitions("orders", [0])], 1000), 2)
    every = broker.ask(ElectLeadersRequest(kind, None, 1000), 2)
    none = broker.ask(ElectLeadersRequest(kind, [], 1000), 2)

    refusal = PartitionResult(0, INVALID_REQUEST, f"Unknown election type {kind}")
    assert named == ElectLeadersResponse(0, INVALID_REQUEST, [ReplicaElectionResult("orders", [refusal])])
    assert every == ElectLeadersResponse(0, INVALID_REQUEST, [])
    assert none == ElectLeadersResponse(0, 0, [])


def test_a_long_request_is_answered_like_a_short_one(broker: HandlerBroker) -> None:
    broker.topic("orders")

    def ask(times: int) -> list[PartitionResult]:
        wanted = [TopicPartitions("orders", [0, 7] * times)]
        (topic,) = broker.ask(ElectLeadersRequest(0, wanted, 1000), 2).replica_election_results
        return list(topic.partition_result)

    assert ask(1000) == ask(1) * 1000
