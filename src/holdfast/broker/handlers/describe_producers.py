"""DescribeProducers: the idempotent producers that partitions know, with their last sequence and timestamp.

The handler itself asks for the right to read a topic, because Kafka looks at the name before and for the topic after.
A partition that is named twice is described once: it may know many producers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import Encoded, Refused, RequestContext, handles
from holdfast.broker.handlers._in_worker import in_worker
from holdfast.broker.partition import Partition
from holdfast.broker.security.acls import Operation
from holdfast.broker.topics import Topic, invalid_name
from holdfast.log import LogError
from holdfast.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.security.user_desk import Access
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

NAMES_AT_A_TIME: Final = 200
NO_COORDINATOR: Final = -1
NO_TRANSACTION: Final = -1
"""There are no transactions (docs/differences.md, 1)."""


@handles(DESCRIBE_PRODUCERS)
async def describe_producers(broker: Broker, request: DescribeProducersRequest, context: RequestContext) -> Encoded:
    wanted = await asyncio.to_thread(_wanted, request)
    unreadable = await _unreadable(context.access, wanted)

    def make() -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[_of_topic(broker, name, indexes, name in unreadable) for name, indexes in wanted.items()]
        )

    return await in_worker(make, context.api_version)


def _wanted(request: DescribeProducersRequest) -> dict[str, dict[int, None]]:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _unreadable(access: Access | None, names: Iterable[str]) -> set[str]:
    """On the event loop, where rights are asked for; others get their turn in between."""
    found: set[str] = set()
    if access is not None:
        for number, name in enumerate(names, 1):
            if invalid_name(name) is None and not access.topic(Operation.READ, name):
                found.add(name)
            if number % NAMES_AT_A_TIME == 0:
                await asyncio.sleep(0)
    return found


def _of_topic(broker: Broker, name: str, indexes: Iterable[int], is_unreadable: bool) -> TopicResponse:
    try:
        topic = _topic(broker, name, is_unreadable)
    except Refused as refused:
        answers = [PartitionResponse(index, refused.code, refused.message) for index in indexes]
    else:
        answers = [_of_partition(topic.partition(index), index) for index in indexes]
    return TopicResponse(name, answers)


def _topic(broker: Broker, name: str, is_unreadable: bool) -> Topic:
    reason = invalid_name(name)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if is_unreadable:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    topic = broker.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic


def _of_partition(partition: Partition | None, index: int) -> PartitionResponse:
    if partition is None:
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        producers = partition.log.active_producers()
    except LogError as error:
        logger.error("%s", error)
        return PartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return PartitionResponse(
        index, active_producers=[ProducerState(*known, NO_COORDINATOR, NO_TRANSACTION) for known in producers]
    )
