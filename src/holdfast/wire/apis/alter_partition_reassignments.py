"""AlterPartitionReassignments: move partitions to other replicas, or cancel such a move (KIP-455).

Flexible from the start. v1 can forbid that the number of replicas changes (KIP-860).
"""

from holdfast.wire.fields import array, boolean, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", versions=(0, 1), flexible=0)


@struct_type
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable=0, default=None)


@struct_type
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@request(ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct_type
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@struct_type
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
