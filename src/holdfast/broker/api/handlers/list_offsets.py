"""ListOffsets: the offset at a time, or at the start or the end of a partition.

The start and end offsets are known. A lookup by timestamp reads and decodes a batch, so it runs in a worker thread and
the request is parked. There are no transactions, so the isolation level changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.broker.api.handlers._common import check_leader_epoch
from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH, Partition
from holdfast.broker.util.slices import Work, sliced_count, sliced_map
from holdfast.log import CorruptSegment, LogError
from holdfast.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError

if TYPE_CHECKING:
    from holdfast.broker.storage.topics import Topic

logger = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

FIRST_VERSION: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version of ListOffsets for each special timestamp."""

FIRST_WITH_LEADER_EPOCHS: Final = 4
NO_EPOCH: Final = -1
ISOLATION_LEVELS: Final = (0, 1)


class _Search(NamedTuple):
    """A lookup by timestamp, and the response that it fills in."""

    partition: Partition
    timestamp: int
    answer: ListOffsetsPartitionResponse
    leader_epoch: int


@handler(LIST_OFFSETS)
def list_offsets(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> Work[ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
    times = yield from sliced_count(
        (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
    )
    searches: list[_Search] = []
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for wanted_topic in request.topics:
        yield
        name = wanted_topic.name
        topic = services.topics.get(name)
        of_topic = answers.setdefault(name, {})
        for wanted in wanted_topic.partitions:
            yield
            index = wanted.partition_index
            if request.isolation_level not in ISOLATION_LEVELS:
                of_topic[index] = ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            elif times[name, index] > 1:
                of_topic[index] = ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
            else:
                of_topic[index] = _answer(topic, wanted, context.api_version, searches)
    topics = yield from sliced_map(
        lambda found: ListOffsetsTopicResponse(found[0], list(found[1].values())), answers.items()
    )
    response = ListOffsetsResponse(topics=topics)
    return _after(searches, response) if searches else response


def _answer(
    topic: Topic | None, wanted: ListOffsetsPartition, api_version: int, searches: list[_Search]
) -> ListOffsetsPartitionResponse:
    """The answer for one partition; the result of a search is filled in later."""
    answer = ListOffsetsPartitionResponse(wanted.partition_index)
    timestamp = wanted.timestamp
    if timestamp < 0 and api_version < FIRST_VERSION.get(timestamp, api_version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    partition = topic.partition(wanted.partition_index) if topic is not None else None
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error_code = check_leader_epoch(wanted.current_leader_epoch)
    if answer.error_code or timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # Without tiered storage there is no such offset. The answer is -1 without an error.
        return answer
    leader_epoch = LEADER_EPOCH if api_version >= FIRST_WITH_LEADER_EPOCHS else NO_EPOCH
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = partition.log.end_offset, leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = partition.log.start_offset, leader_epoch
    else:
        searches.append(_Search(partition, timestamp, answer, leader_epoch))
    return answer


async def _after(searches: list[_Search], response: ListOffsetsResponse) -> ListOffsetsResponse:
    await asyncio.to_thread(_search_all, searches)
    return response


def _search_all(searches: list[_Search]) -> None:
    for partition, timestamp, answer, leader_epoch in searches:
        try:
            log = partition.log
            found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        except CorruptSegment:
            # The log has already reported it, once.
            answer.error_code = ErrorCode.CORRUPT_MESSAGE
            continue
        except (LogError, OSError, WireError) as error:
            logger.error("looking for timestamp %d in %s: %s", timestamp, partition, error)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        if found is not None and found.offset >= 0:
            answer.timestamp, answer.offset, answer.leader_epoch = found.timestamp, found.offset, leader_epoch
