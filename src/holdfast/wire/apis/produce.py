"""Produce: append record batches to partitions.

The definitions start at v3, the first with record batches of format 2; lower versions are advertised because of
librdkafka, but rejected before they are decoded. v5 adds the log start offset, v7 allows zstd (KIP-110), v8 returns the
invalid records of a rejected batch (KIP-467); v9 is the first flexible version. v10 adds hints at the current leader
(KIP-951), v12 lets a transactional produce add its partition to the transaction (KIP-890), v13 replaces topic names by
ids (KIP-516). v4, v6 and v11 changed no field. Unlike in all other APIs, the throttle time is at the end of the
response.
"""

from holdfast.wire.fields import array, int16, int32, int64, string, struct, uuid
from holdfast.wire.fields import records as record_batches
from holdfast.wire.message import Api, Records, request, response, struct_type

PRODUCE = Api(0, "Produce", versions=(3, 13), flexible=9)


@struct_type
class PartitionProduceData:
    index: int = int32()
    records: Records | None = record_batches(nullable=0)


@struct_type
class TopicProduceData:
    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@request(PRODUCE)
class ProduceRequest:
    transactional_id: str | None = string(nullable=0, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct_type
class BatchIndexAndErrorMessage:
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=0, default=None)


@struct_type
class LeaderIdAndEpoch:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct_type
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = string(since=8, nullable=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


@struct_type
class TopicProduceResponse:
    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct_type
class NodeEndpoint:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)


@response(PRODUCE)
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
