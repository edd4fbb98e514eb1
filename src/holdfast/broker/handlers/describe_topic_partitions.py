"""DescribeTopicPartitions: the topics in the order of their names, as many partitions as one page may hold.

Without names: all topics that the client may see. A page that does not reach the end names the partition at which the
next one begins; a client sends that back as its cursor, with the same names. Nothing is remembered in between: a topic
that comes or goes meanwhile is seen or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers._common import topic_operations
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.security.acls import Operation
from holdfast.broker.slices import Work, each, in_order
from holdfast.broker.topics import INTERNAL_TOPICS, Topic, invalid_name
from holdfast.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Work[DescribeTopicPartitionsResponse]:
    asked = [topic.name for topic in request.topics]
    if _is_malformed(asked, request.cursor):
        refusals = yield from each(
            lambda name: DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name), asked
        )
        return DescribeTopicPartitionsResponse(topics=refusals)
    begin = request.cursor or Cursor()
    present = asked or [topic.name for topic in broker.topics]
    names = yield from in_order(name for name in present if name >= begin.topic_name)
    access = context.access
    visible: list[str] = []
    for name in names:
        yield
        if access is None or access.topic(Operation.DESCRIBE, name):
            visible.append(name)
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    response = yield from _page(broker, visible, begin, limit)
    for described in response.topics:
        yield
        described.topic_authorized_operations = topic_operations(access, described.name or "")
    if asked and len(visible) < len(names):
        # Whether they exist or not is not to be known. As in Kafka every page names them.
        refused = yield from in_order(set(names).difference(visible))
        response.topics += yield from each(
            lambda name: DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name), refused
        )
    return response


def _is_malformed(asked: Sequence[str], cursor: Cursor | None) -> bool:
    """A cursor points at a partition of a topic that is asked for."""
    if cursor is None:
        return False
    return cursor.partition_index < 0 or (bool(asked) and cursor.topic_name not in asked)


def _page(broker: Broker, names: Sequence[str], begin: Cursor, limit: int) -> Work[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    left = limit
    for name in names:
        yield
        if left == 0:
            response.next_cursor = Cursor(name, 0)
            break
        topic = broker.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = begin.partition_index if name == begin.topic_name else 0
        end = min(len(topic.partitions), first + left)
        response.topics.append(_described(broker.node_id, topic, range(first, end)))
        if end < len(topic.partitions):
            response.next_cursor = Cursor(name, end)
            break
        left -= max(0, end - first)
    return response


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if invalid_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(code, name, is_internal=name in INTERNAL_TOPICS)


def _described(node_id: int, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    only = [node_id]
    partitions = [
        DescribeTopicPartitionsResponsePartition(ErrorCode.NONE, index, node_id, LEADER_EPOCH, only, only, [], [])
        for index in indexes
    ]
    return DescribeTopicPartitionsResponseTopic(ErrorCode.NONE, topic.name, topic.id, topic.internal, partitions)
