"""DescribeQuorum: this broker alone holds the cluster's metadata, so it is the leader and the only voter.

There is no metadata log, so its end and its high watermark are -1, which means unknown in Kafka. Tools that query the
leader, the followers and their lag get a correct answer; an error would make them fail (docs/differences.md, 63).
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from holdfast.wire.error_codes import ErrorCode

METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN: Final = -1
FIRST_WITH_NODES: Final = 2
QUORUM_TOPICS: Final = [DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]


@handler(DESCRIBE_QUORUM)
def describe_quorum(services: Services, request: DescribeQuorumRequest, context: RequestContext) -> Any:
    if request.topics == QUORUM_TOPICS:
        return _described(services, context)
    return _unknown(request)


def _described(services: Services, context: RequestContext) -> DescribeQuorumResponse:
    now_ms = services.now_ms()
    this = ReplicaState(
        services.node_id, log_end_offset=UNKNOWN, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    partition = QuorumPartition(
        leader_id=services.node_id, leader_epoch=LEADER_EPOCH, high_watermark=UNKNOWN, current_voters=[this]
    )
    response = DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [partition])])
    if context.api_version >= FIRST_WITH_NODES:
        # This broker is the controller. The client reaches it at the listener that it is connected to.
        listener = QuorumListener(context.session.listener.name, *context.advertised)
        response.nodes = [QuorumNode(services.node_id, [listener])]
    return response


def _unknown(request: DescribeQuorumRequest) -> Work[DescribeQuorumResponse]:
    """As in Kafka, a request with any other partition is rejected as a whole."""
    code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    response = DescribeQuorumResponse()
    for topic in request.topics:
        answered = QuorumTopic(topic.topic_name)
        response.topics.append(answered)
        for partition in topic.partitions:
            answered.partitions.append(QuorumPartition(partition.partition_index, code, message))
            yield
        yield
    return response
