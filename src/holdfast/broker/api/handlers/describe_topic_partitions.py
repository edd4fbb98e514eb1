"""DescribeTopicPartitions: topics in the order of their names, with as many partitions as a page may hold.

If the request names no topics, the response contains all topics that the client may describe. If there are more, the
response contains a cursor: the partition at which the next page begins. The client sends it back with the same names.
The broker keeps no state between pages, so a topic that is created or deleted meanwhile may or may not be included.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.storage.topics import INTERNAL_TOPICS, Topic, invalid_name
from holdfast.broker.util.slices import Work, sliced_map, sliced_sort
from holdfast.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode


@handler(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Work[DescribeTopicPartitionsResponse]:
    asked = [topic.name for topic in request.topics]
    if _is_malformed(asked, request.cursor):
        refusals = yield from sliced_map(
            lambda name: DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name), asked
        )
        return DescribeTopicPartitionsResponse(topics=refusals)
    begin = request.cursor or Cursor()
    present = asked or [topic.name for topic in services.topics]
    names = yield from sliced_sort(name for name in present if name >= begin.topic_name)
    visibility = context.visibility
    visible: list[str] = []
    for name in names:
        yield
        if visibility.may_describe_topic(name):
            visible.append(name)
    limit = max(1, min(request.response_partition_limit, services.config.max_request_partition_size_limit))
    response = yield from _page(services, visible, begin, limit)
    for described in response.topics:
        yield
        described.topic_authorized_operations = visibility.topic_operations(described.name or "")
    if asked and len(visible) < len(names):
        # The response does not reveal whether they exist. As in Kafka, every page names them.
        refused = yield from sliced_sort(set(names).difference(visible))
        response.topics += yield from sliced_map(
            lambda name: DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name), refused
        )
    return response


def _is_malformed(asked: Sequence[str], cursor: Cursor | None) -> bool:
    """The cursor must point at a partition of a requested topic."""
    if cursor is None:
        return False
    return cursor.partition_index < 0 or (bool(asked) and cursor.topic_name not in asked)


def _page(services: Services, names: Sequence[str], begin: Cursor, limit: int) -> Work[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    left = limit
    for name in names:
        yield
        if left == 0:
            response.next_cursor = Cursor(name, 0)
            break
        topic = services.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = begin.partition_index if name == begin.topic_name else 0
        end = min(len(topic.partitions), first + left)
        response.topics.append(_described(services.node_id, topic, range(first, end)))
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
