"""DescribeQuorum: this broker decides alone what the cluster's metadata is, so it is the leader and the only voter.

There is no metadata log: its end and its high watermark are -1, which in Kafka means unknown. Tools that ask which node
leads, which follow and how far behind they are get a true answer; an error would make them fail. docs/differences.md
lists it as 63.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.slices import Work
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

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN: Final = -1
FIRST_WITH_NODES: Final = 2
THE_QUORUM: Final = [DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]


@handles(DESCRIBE_QUORUM)
def describe_quorum(broker: Broker, request: DescribeQuorumRequest, context: RequestContext) -> Any:
    if request.topics == THE_QUORUM:
        return _described(broker, context)
    return _unknown(request)


def _described(broker: Broker, context: RequestContext) -> DescribeQuorumResponse:
    now_ms = broker.now_ms()
    this = ReplicaState(
        broker.node_id, log_end_offset=UNKNOWN, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    partition = QuorumPartition(
        leader_id=broker.node_id, leader_epoch=LEADER_EPOCH, high_watermark=UNKNOWN, current_voters=[this]
    )
    response = DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [partition])])
    if context.api_version >= FIRST_WITH_NODES:
        # This broker is the controller: the client reaches it at the listener that it uses.
        listener = QuorumListener(context.connection.door.listener.name, *context.advertised)
        response.nodes = [QuorumNode(broker.node_id, [listener])]
    return response


def _unknown(request: DescribeQuorumRequest) -> Work[DescribeQuorumResponse]:
    """As Kafka: with anything else in the request, also beside the one partition that exists, all of it is refused."""
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
