"""OffsetCommit: store how far a group has read.

v0 and v1 are no longer Kafka's, but librdkafka looks for v1 before it takes a broker for one that knows groups. v1
adds generation and member id, and a timestamp per partition that v2 replaces by one retention time (gone again after
v4). v3 adds the throttle time, v6 the leader epoch (KIP-320), v7 the instance id (KIP-345); v8 is the first flexible
version. v9 may carry a member epoch of the newer group protocol (KIP-848), v10 replaces topic names by ids.
"""

from holdfast.wire.fields import array, int16, int32, int64, string, uuid
from holdfast.wire.message import Api, request, response, struct_type

OFFSET_COMMIT = Api(8, "OffsetCommit", versions=(0, 10), flexible=8)


@struct_type
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    committed_metadata: str | None = string(nullable=0)


@struct_type
class OffsetCommitRequestTopic:
    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@request(OFFSET_COMMIT)
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct_type
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct_type
class OffsetCommitResponseTopic:
    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@response(OFFSET_COMMIT)
class OffsetCommitResponse:
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
