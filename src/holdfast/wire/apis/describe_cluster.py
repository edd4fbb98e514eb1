"""DescribeCluster: the brokers, the controller and the cluster's id (KIP-700).

Flexible from the start. v1 can request controllers instead of brokers (KIP-919), v2 also returns fenced brokers
(KIP-1073).
"""

from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, array, boolean, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_CLUSTER = Api(60, "DescribeCluster", versions=(0, 2), flexible=0)


@request(DESCRIBE_CLUSTER)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


@struct_type
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)
    is_fenced: bool = boolean(since=2)


@response(DESCRIBE_CLUSTER)
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)
