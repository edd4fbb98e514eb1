"""DescribeCluster: this broker, which is the only node of the cluster and its controller."""

from __future__ import annotations

from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.wire.error_codes import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handler(DESCRIBE_CLUSTER)
def describe_cluster(
    services: Services,
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
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[DescribeClusterBroker(services.node_id, host, port, services.rack)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.visibility.cluster_operations()
    return response
