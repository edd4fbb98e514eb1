"""Produce requests for one partition of the gateway's topics, and the meaning of their answers."""

from __future__ import annotations

from typing import Final

from holdfast.gateway.state.topic import StateTopic
from holdfast.wire.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast.wire.error_codes import ErrorCode

STORED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
REJECTED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""The batch will never be stored. All other errors may be over at the next attempt."""
OTHER_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Kafka expects another sequence number, or any."""

_ALL_REPLICAS: Final = -1


def produce_request(topic: StateTopic, partition: int, batch: bytes, timeout_s: float) -> ProduceRequest:
    """Newer versions of the API have the topic's id: a batch cannot end up in another topic of the same name."""
    data = TopicProduceData(topic.name, topic.id, [PartitionProduceData(partition, batch)])
    return ProduceRequest(None, _ALL_REPLICAS, int(timeout_s * 1000), [data])


def answered_within_s(timeout_s: float) -> float:
    """Kafka answers by its own timeout. This one is for a broker that does not answer at all."""
    return 1.5 * timeout_s


def partition_response(response: ProduceResponse) -> PartitionProduceResponse:
    """Of the only partition of the request."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            return partition
    return PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="an empty response")
