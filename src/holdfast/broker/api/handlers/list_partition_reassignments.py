"""ListPartitionReassignments: with one broker, no partition is ever being reassigned."""

from __future__ import annotations

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handler(LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(
    services: Services,  # noqa: ARG001
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
