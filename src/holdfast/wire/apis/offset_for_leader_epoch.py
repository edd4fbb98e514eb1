"""OffsetForLeaderEpoch: the end offset of a leader epoch, so that a reader detects truncation.

The definitions start at v2, which fences by the reader's own epoch (KIP-320). v3 adds the replica id, -2 for a reader
that is not a replica and may read beyond the high watermark; v4 is the first flexible version.
"""

from holdfast.wire.fields import array, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", versions=(2, 4), flexible=4)


@struct_type
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct_type
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@request(OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochRequest:
    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct_type
class OffsetForLeaderPartitionResult:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct_type
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[OffsetForLeaderPartitionResult] = array(OffsetForLeaderPartitionResult)


@response(OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
