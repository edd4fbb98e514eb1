"""DescribeQuorum; the expected answers are those of Apache Kafka 4.3 with one node, but for the metadata log."""

import pytest

from holdfast.wire.apis.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from tests.support.handler_broker import NOW_MS, HandlerBroker

UNKNOWN_TOPIC_OR_PARTITION = 3
METADATA = "__cluster_metadata"


def asked(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        [DescribeQuorumTopic(name, [DescribeQuorumPartition(index) for index in indexes]) for name, indexes in topics]
    )


@pytest.mark.parametrize("version", range(3))
def test_this_broker_leads_and_is_the_only_voter(broker: HandlerBroker, version: int) -> None:
    response = broker.ask(asked((METADATA, [0])), version)

    time = NOW_MS if version >= 1 else -1
    voter = ReplicaState(1, bytes(16), -1, time, time)
    partition = QuorumPartition(0, 0, "", 1, 0, -1, [voter], [])
    nodes = [QuorumNode(1, [QuorumListener("PLAINTEXT", "broker.test", 9092)])] if version >= 2 else []
    assert response == DescribeQuorumResponse(0, "", [QuorumTopic(METADATA, [partition])], nodes)


@pytest.mark.parametrize(
    "topics",
    [
        [("orders", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), (METADATA, [0])],
        [(METADATA, [0]), ("orders", [0])],
        [(METADATA, [])],
        [],
        [("orders", [0, 1] * 1000)],
    ],
)
def test_no_other_partition_has_a_quorum(broker: HandlerBroker, topics: list[tuple[str, list[int]]]) -> None:
    broker.topic("orders")

    response = broker.ask(asked(*topics), 2)

    message = "This server does not host this topic-partition."
    assert response == DescribeQuorumResponse(
        topics=[
            QuorumTopic(name, [QuorumPartition(index, UNKNOWN_TOPIC_OR_PARTITION, message) for index in indexes])
            for name, indexes in topics
        ]
    )
