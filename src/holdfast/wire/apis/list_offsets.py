"""ListOffsets: the offset of a timestamp, or of the start or the end of a partition.

Negative timestamps have special meanings: -1 the latest offset, -2 the earliest, -3 (from v7) that of the largest
timestamp, -4 (v8) the earliest on local disk, -5 (v9) the last tiered, -6 (v11) the earliest not yet uploaded. The
definitions start at v1, which returns a single offset. v2 adds the isolation level and the throttle time, v4 leader
epochs (KIP-320); v6 is the first flexible version. v10 adds a timeout for answers from remote storage (KIP-1075). v3
and v5 changed no field.
"""

from holdfast.wire.fields import array, int8, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

LIST_OFFSETS = Api(2, "ListOffsets", versions=(1, 11), flexible=6)


@struct_type
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    timestamp: int = int64()


@struct_type
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@request(LIST_OFFSETS)
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


@struct_type
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@struct_type
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@response(LIST_OFFSETS)
class ListOffsetsResponse:
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
