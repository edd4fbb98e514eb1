"""ElectLeaders: the only replica leads already, so no election is ever needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers._long_replies import reply_of
from holdfast.wire.apis.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

PREFERRED: Final = 0
UNCLEAN: Final = 1
NOT_NEEDED: Final = "Leader election not needed for topic partition."


@handles(ELECT_LEADERS)
def elect_leaders(broker: Broker, request: ElectLeadersRequest, context: RequestContext) -> Any:
    wanted, version = request.topic_partitions, context.api_version
    if wanted is None:
        return _elect_all(broker, request, version)
    elements = len(wanted) + sum(len(topic.partitions) for topic in wanted)
    if request.election_type in (PREFERRED, UNCLEAN) or not wanted:

        def make() -> ElectLeadersResponse:
            return ElectLeadersResponse(replica_election_results=[_elected(broker, topic) for topic in wanted])

        return reply_of(elements, make, version)
    code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    return reply_of(elements, lambda: refused(wanted, code, message, version), version)


def _elect_all(broker: Broker, request: ElectLeadersRequest, version: int) -> Any:
    """As Kafka: every topic is named, and of its partitions those whose leader was to change: none."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    names = [topic.name for topic in broker.topics]
    return reply_of(
        len(names),
        lambda: ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(name) for name in names]),
        version,
    )


def _elected(broker: Broker, wanted: TopicPartitions) -> ReplicaElectionResult:
    name = wanted.topic
    topic = broker.topics.get(name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        results = [PartitionResult(index, unknown, f"No such topic as {name}") for index in wanted.partitions]
    else:
        results = [
            PartitionResult(index, unknown, f"No such partition as {name}-{index}")
            if topic.partition(index) is None
            else PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)
            for index in wanted.partitions
        ]
    return ReplicaElectionResult(name, results)


def refused(wanted: Sequence[TopicPartitions], code: ErrorCode, message: str, version: int) -> ElectLeadersResponse:
    """One error for the whole request; below v1 there is only room for it with each partition."""
    results = [
        ReplicaElectionResult(topic.topic, [PartitionResult(index, code, message) for index in topic.partitions])
        for topic in wanted
    ]
    return ElectLeadersResponse(error_code=code if version >= 1 else ErrorCode.NONE, replica_election_results=results)
