"""OffsetFetch: the committed offsets of groups.

v0, which Kafka answered from ZooKeeper, has the layout of v1. From v2 on, null requests all topics, and there is an
error code for the whole group. v3 adds the throttle time, v5 the leader epoch (KIP-320); v6 is the first flexible
version. v7 can require stable offsets, which no open transaction can change (KIP-447), v8 has several groups (KIP-709),
v9 adds member id and epoch (KIP-848), v10 replaces topic names by ids. v4 changed no field.
"""

from holdfast.wire.fields import array, boolean, int16, int32, int64, string, uuid
from holdfast.wire.message import Api, request, response, struct_type

OFFSET_FETCH = Api(9, "OffsetFetch", versions=(0, 10), flexible=6)


@struct_type
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = array(int32())


@struct_type
class OffsetFetchRequestGroupTopic:
    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(int32())


@struct_type
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string(since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestGroupTopic] | None = array(OffsetFetchRequestGroupTopic, nullable=0)


@request(OFFSET_FETCH)
class OffsetFetchRequest:
    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@struct_type
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


@struct_type
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct_type
class OffsetFetchResponseGroupPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable=0)
    error_code: int = int16()


@struct_type
class OffsetFetchResponseGroupTopic:
    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponseGroupPartition] = array(OffsetFetchResponseGroupPartition)


@struct_type
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseGroupTopic] = array(OffsetFetchResponseGroupTopic)
    error_code: int = int16()


@response(OFFSET_FETCH)
class OffsetFetchResponse:
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
