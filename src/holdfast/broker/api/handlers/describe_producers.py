"""DescribeProducers: the idempotent producers of partitions, with their last sequence and timestamp.

As in Kafka, READ on the topic is checked after the validity of its name and before its existence. A partition that is
named twice is described once, because it may have many producers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from holdfast.broker.api.handlers._encode_in_thread import encode_in_thread
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError, PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.visibility import Visibility
from holdfast.broker.storage.partition import Partition
from holdfast.broker.storage.topics import Topic, invalid_name
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

logger = logging.getLogger(__name__)

NAMES_PER_STEP: Final = 200
NO_COORDINATOR: Final = -1
NO_TRANSACTION: Final = -1
"""There are no transactions (docs/differences.md, 1)."""


@handler(DESCRIBE_PRODUCERS)
async def describe_producers(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> PreEncoded:
    wanted = await asyncio.to_thread(_wanted, request)
    unreadable = await _unreadable(context.visibility, wanted)

    def make() -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[_of_topic(services, name, indexes, name in unreadable) for name, indexes in wanted.items()]
        )

    return await encode_in_thread(make, context.api_version)


def _wanted(request: DescribeProducersRequest) -> dict[str, dict[int, None]]:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _unreadable(visibility: Visibility, names: Iterable[str]) -> set[str]:
    """Runs on the event loop, like all authorization. Other requests are served in between."""
    found: set[str] = set()
    if not visibility.is_complete:
        for number, name in enumerate(names, 1):
            if invalid_name(name) is None and not visibility.may_read_topic(name):
                found.add(name)
            if number % NAMES_PER_STEP == 0:
                await asyncio.sleep(0)
    return found


def _of_topic(services: Services, name: str, indexes: Iterable[int], is_unreadable: bool) -> TopicResponse:
    try:
        topic = _topic(services, name, is_unreadable)
    except PartialError as refused:
        answers = [PartitionResponse(index, refused.code, refused.message) for index in indexes]
    else:
        answers = [_of_partition(topic.partition(index), index) for index in indexes]
    return TopicResponse(name, answers)


def _topic(services: Services, name: str, is_unreadable: bool) -> Topic:
    reason = invalid_name(name)
    if reason:
        raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if is_unreadable:
        raise PartialError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    topic = services.topics.get(name)
    if topic is None:
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
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
