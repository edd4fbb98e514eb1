"""DescribeProducers: the idempotent and transactional producers of a partition (KIP-664).

Flexible from the start.
"""

from holdfast.wire.fields import array, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", versions=(0, 0), flexible=0)


@struct_type
class TopicRequest:
    name: str = string()
    partition_indexes: list[int] = array(int32())


@request(DESCRIBE_PRODUCERS)
class DescribeProducersRequest:
    topics: list[TopicRequest] = array(TopicRequest)


@struct_type
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct_type
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@struct_type
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@response(DESCRIBE_PRODUCERS)
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
