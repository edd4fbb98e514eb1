"""DescribeQuorum: the leader, voters and observers of the cluster's metadata (KIP-595).

Flexible from the start. v1 says when a replica last fetched and was last caught up (KIP-836); v2 has messages beside
the errors, the nodes with their listeners, and the id of each replica's directory (KIP-853).
"""

from holdfast.wire.fields import array, int16, int32, int64, string, uint16, uuid
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_QUORUM = Api(55, "DescribeQuorum", versions=(0, 2), flexible=0)


@struct_type
class DescribeQuorumPartition:
    partition_index: int = int32()


@struct_type
class DescribeQuorumTopic:
    topic_name: str = string()
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition)


@request(DESCRIBE_QUORUM)
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic)


@struct_type
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64(since=1, default=-1, ignorable=True)


@struct_type
class QuorumPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct_type
class QuorumTopic:
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@struct_type
class QuorumListener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct_type
class QuorumNode:
    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


@response(DESCRIBE_QUORUM)
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2, ignorable=True)
    topics: list[QuorumTopic] = array(QuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, since=2)
