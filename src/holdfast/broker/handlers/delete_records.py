"""DeleteRecords: partitions begin later. What lies before is gone for readers at once; its files go with retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.slices import Work
from holdfast.broker.topic_config import value_of
from holdfast.log import LogError, OffsetOutOfRange, StorageError
from holdfast.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker
    from holdfast.broker.topics import Topic

logger = logging.getLogger(__name__)

HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1

# The file with the starts of all logs is written whole, so by one request at a time.
_writing: Final[WeakKeyDictionary[Broker, asyncio.Lock]] = WeakKeyDictionary()


@handles(DELETE_RECORDS)
async def delete_records(
    broker: Broker,
    request: DeleteRecordsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DeleteRecordsResponse:
    return await broker.changes.to_the_end(_delete_records(broker, request))


async def _delete_records(broker: Broker, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    done: list[DeleteRecordsPartitionResult] = []
    async for wanted_topic in broker.slices.over(request.topics):
        topic = broker.topics.get(wanted_topic.name)
        # As in Kafka, the last one counts of several for one partition.
        by_index = {wanted.partition_index: wanted async for wanted in broker.slices.over(wanted_topic.partitions)}
        results = await broker.slices.finish(_cut_all(broker, topic, by_index.values()))
        done += [result for result in results if not result.error_code]
        response.topics.append(DeleteRecordsTopicResult(wanted_topic.name, results))
    if done:
        try:
            await _store_starts(broker)
        except StorageError as error:
            logger.error("%s", error)
            for result in done:
                result.low_watermark, result.error_code = UNKNOWN, ErrorCode.KAFKA_STORAGE_ERROR
    return response


def _cut_all(
    broker: Broker, topic: Topic | None, wanted: Iterable[DeleteRecordsPartition]
) -> Work[list[DeleteRecordsPartitionResult]]:
    results: list[DeleteRecordsPartitionResult] = []
    for one in wanted:
        yield
        partition = topic.partition(one.partition_index) if topic is not None else None
        if partition is not None:
            yield from partition.awake()
        results.append(_cut(broker, topic, one))
    return results


def _cut(broker: Broker, topic: Topic | None, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = topic.partition(index) if topic is not None else None
        if topic is None or partition is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if "delete" not in value_of(broker.config, topic.overrides, "cleanup.policy"):
            raise Refused(ErrorCode.POLICY_VIOLATION)
        offset = partition.log.end_offset if wanted.offset == HIGH_WATERMARK else wanted.offset
        return DeleteRecordsPartitionResult(index, partition.log.delete_records_before(offset))
    except Refused as refused:
        return DeleteRecordsPartitionResult(index, UNKNOWN, refused.code)
    except OffsetOutOfRange:
        return DeleteRecordsPartitionResult(index, UNKNOWN, ErrorCode.OFFSET_OUT_OF_RANGE)
    except LogError as error:
        logger.error("%s", error)
        return DeleteRecordsPartitionResult(index, UNKNOWN, ErrorCode.KAFKA_STORAGE_ERROR)


async def _store_starts(broker: Broker) -> None:
    async with _writing.setdefault(broker, asyncio.Lock()):
        await asyncio.to_thread(broker.data.write_start_offsets, broker.topics.logs(), makes_room=True)
