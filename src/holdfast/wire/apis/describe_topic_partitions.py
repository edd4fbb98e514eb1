"""DescribeTopicPartitions: topics by name, or all, a page at a time (KIP-966).

The only version, v0, is flexible. Java's admin client uses this API to describe topics if the broker has it.
"""

from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, array, boolean, int16, int32, string, struct, uuid
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", versions=(0, 0), flexible=0)


@struct_type
class TopicRequest:
    name: str = string()


@struct_type
class Cursor:
    """The start of the requested page, or in a response the start of the next one."""

    topic_name: str = string()
    partition_index: int = int32()


@request(DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable=0)


@struct_type
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), nullable=0, default=None)
    last_known_elr: list[int] | None = array(int32(), nullable=0, default=None)
    offline_replicas: list[int] = array(int32())


@struct_type
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)


@response(DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable=0)
