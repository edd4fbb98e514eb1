"""Metadata: the addresses of the brokers, and the topics with the leader of each partition.

In v0 an empty list of topics requests all of them. From v1 on, null does, and an empty list requests none. v1 adds
racks, the controller and which topics are internal, v2 the cluster id, v3 the throttle time, v4 whether the request may
create a topic, v5 offline replicas, v7 leader epochs (KIP-320), v8 authorized operations (KIP-430); v9 is the first
flexible version. v10 adds topic ids, but requests by id work only from v12 on, v11 leaves the cluster's authorized
operations to DescribeCluster, and v13 has an error code for the whole response. v6 changed no field.
"""

from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, array, boolean, int16, int32, string, uuid
from holdfast.wire.message import Api, request, response, struct_type

METADATA = Api(3, "Metadata", versions=(0, 13), flexible=9)


@struct_type
class MetadataRequestTopic:
    topic_id: bytes = uuid(since=10, ignorable=True)
    name: str | None = string(nullable=10)


@request(METADATA)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@struct_type
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=1, default=None, ignorable=True)


@struct_type
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), since=5, ignorable=True)


@struct_type
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: bytes = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=OPERATIONS_NOT_REQUESTED)


@response(METADATA)
class MetadataResponse:
    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=OPERATIONS_NOT_REQUESTED)
    error_code: int = int16(since=13, ignorable=True)
