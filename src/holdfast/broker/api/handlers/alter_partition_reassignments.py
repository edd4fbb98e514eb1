"""AlterPartitionReassignments: a partition may stay on the only broker; every other target is rejected.

Therefore no reassignment is ever in progress, and there is none to cancel.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.handlers._common import check_assignment
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.topics import Topic
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from holdfast.wire.error_codes import ErrorCode


@handler(ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(
    services: Services,
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,  # noqa: ARG001
) -> Any:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()  # as in Kafka, an empty message whatever the request allowed
    return _answers(services, request)


def _answers(
    services: Services, request: AlterPartitionReassignmentsRequest
) -> Work[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for wanted in request.topics:
        topic = services.topics.get(wanted.name)
        answered = ReassignableTopicResponse(wanted.name)
        response.responses.append(answered)
        for partition in wanted.partitions:
            code, message = ErrorCode.NONE, None
            try:
                _check(services.node_id, wanted.name, topic, partition)
            except PartialError as refused:
                code, message = refused.code, refused.message
            answered.partitions.append(ReassignablePartitionResponse(partition.partition_index, code, message))
            yield
        yield
    return response


def _check(node_id: int, name: str, topic: Topic | None, wanted: ReassignablePartition) -> None:
    if topic is None:
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if topic.partition(wanted.partition_index) is None:
        message = f"Unable to find partition {name}:{wanted.partition_index}."
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wanted.replicas is None:
        raise PartialError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_assignment(wanted.replicas, node_id)
