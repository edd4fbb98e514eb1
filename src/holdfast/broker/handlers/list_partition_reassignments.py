"""ListPartitionReassignments: with one broker no partition is ever on its way to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(
    broker: Broker,  # noqa: ARG001
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
