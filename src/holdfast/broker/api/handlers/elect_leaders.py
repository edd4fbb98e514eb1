"""ElectLeaders: the only replica is the leader already, so no election is ever needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from holdfast.wire.error_codes import ErrorCode

PREFERRED: Final = 0
UNCLEAN: Final = 1
NOT_NEEDED: Final = "Leader election not needed for topic partition."


@handler(ELECT_LEADERS)
def elect_leaders(services: Services, request: ElectLeadersRequest, context: RequestContext) -> Any:
    wanted, version = request.topic_partitions, context.api_version
    if request.election_type not in (PREFERRED, UNCLEAN) and wanted != []:
        message = f"Unknown election type {request.election_type}"
        return refused(wanted or [], ErrorCode.INVALID_REQUEST, message, version)
    return _no_elections(services) if wanted is None else _elected(services, wanted)


def _no_elections(services: Services) -> Work[ElectLeadersResponse]:
    """As in Kafka, all topics, each with the partitions whose leader changes. There are no such partitions."""
    response = ElectLeadersResponse()
    for name in [topic.name for topic in services.topics]:
        response.replica_election_results.append(ReplicaElectionResult(name))
        yield
    return response


def _elected(services: Services, wanted: Sequence[TopicPartitions]) -> Work[ElectLeadersResponse]:
    response = ElectLeadersResponse()
    for topic in wanted:
        result = ReplicaElectionResult(topic.topic)
        response.replica_election_results.append(result)
        known = services.topics.get(topic.topic)
        for index in topic.partitions:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic.topic}"
            if known is not None and known.partition(index) is None:
                message = f"No such partition as {topic.topic}-{index}"
            elif known is not None:
                code, message = ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED
            result.partition_result.append(PartitionResult(index, code, message))
            yield
        yield
    return response


def refused(
    wanted: Sequence[TopicPartitions], code: ErrorCode, message: str, version: int
) -> Work[ElectLeadersResponse]:
    """One error for the whole request; below v1 only partitions have a field for it."""
    response = ElectLeadersResponse(error_code=code if version >= 1 else ErrorCode.NONE)
    for topic in wanted:
        result = ReplicaElectionResult(topic.topic)
        response.replica_election_results.append(result)
        for index in topic.partitions:
            result.partition_result.append(PartitionResult(index, code, message))
            yield
        yield
    return response
