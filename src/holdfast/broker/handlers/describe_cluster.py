"""DescribeCluster: this broker, which is the whole cluster and its controller, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers._common import cluster_operations
from holdfast.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DESCRIBE_CLUSTER)
def describe_cluster(
    broker: Broker,
    request: DescribeClusterRequest,
    context: RequestContext,
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    host, port = context.advertised
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker.node_id, host, port, broker.rack)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context.access)
    return response
