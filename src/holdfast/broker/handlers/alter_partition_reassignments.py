"""AlterPartitionReassignments: a partition may stay on the only broker there is; every other target is refused.

So nothing is ever moved, and there is nothing to cancel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._common import check_assignment
from holdfast.broker.slices import Work
from holdfast.broker.topics import Topic
from holdfast.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(
    broker: Broker,
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,  # noqa: ARG001
) -> Any:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()  # as Kafka: with an empty message, and whatever was allowed
    return _answers(broker, request)


def _answers(broker: Broker, request: AlterPartitionReassignmentsRequest) -> Work[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for wanted in request.topics:
        topic = broker.topics.get(wanted.name)
        answered = ReassignableTopicResponse(wanted.name)
        response.responses.append(answered)
        for partition in wanted.partitions:
            code, message = ErrorCode.NONE, None
            try:
                _check(broker.node_id, wanted.name, topic, partition)
            except Refused as refused:
                code, message = refused.code, refused.message
            answered.partitions.append(ReassignablePartitionResponse(partition.partition_index, code, message))
            yield
        yield
    return response


def _check(node_id: int, name: str, topic: Topic | None, wanted: ReassignablePartition) -> None:
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if topic.partition(wanted.partition_index) is None:
        message = f"Unable to find partition {name}:{wanted.partition_index}."
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wanted.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_assignment(wanted.replicas, node_id)
