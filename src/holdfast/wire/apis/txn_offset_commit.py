"""TxnOffsetCommit: offsets of a group that become valid when their transaction commits.

v2 adds the leader epoch (KIP-320), v3 the member's generation, id and instance id (KIP-447) and is the first flexible
version. v1, v4 and v5 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", versions=(0, 5), flexible=3)


@struct_type
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0)


@struct_type
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@request(TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct_type
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct_type
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@response(TXN_OFFSET_COMMIT)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
