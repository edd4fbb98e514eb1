"""Fetch: read record batches from partitions, waiting for some if there are none.

The definitions start at v4, the first with record batches of format 2 and an isolation level. v5 adds the log start
offset, v7 fetch sessions (KIP-227), v9 the reader's leader epoch (KIP-320), v10 allows zstd (KIP-110), v11 adds the
reader's rack and a preferred replica (KIP-392); v12 is the first flexible version and detects truncation (KIP-595).
v13 replaces topic names by ids (KIP-516), v15 moves the replica id into a tagged state (KIP-903), v16 adds endpoints
of leaders (KIP-951), v17 a replica's directory (KIP-853), v18 its high watermark (KIP-1166). v6, v8 and v14 changed no
field.
"""

from holdfast.wire.fields import array, int8, int16, int32, int64, string, struct, uuid
from holdfast.wire.fields import records as record_batches
from holdfast.wire.message import Api, Part, request, response, struct_type

FETCH = Api(1, "Fetch", versions=(4, 18), flexible=12)


@struct_type
class ReplicaState:
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@struct_type
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, tag=0, ignorable=True)
    high_watermark: int = int64(since=18, tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)


@struct_type
class FetchTopic:
    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct_type
class ForgottenTopic:
    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[int] = array(int32())


@request(FETCH)
class FetchRequest:
    cluster_id: str | None = string(since=12, nullable=12, tag=0, default=None, ignorable=True)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    isolation_level: int = int8()
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


@struct_type
class EpochEndOffset:
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct_type
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct_type
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct_type
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@struct_type
class FetchablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=0)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Part | None = record_batches(nullable=0)


@struct_type
class FetchableTopicResponse:
    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchablePartitionResponse] = array(FetchablePartitionResponse)


@struct_type
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


@response(FETCH)
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
