"""DeleteRecords: moves the log start offset of partitions. Earlier records become invisible at once; retention removes
the files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config.topic import value_of
from holdfast.broker.util.slices import Work
from holdfast.log import DataDirectory, LogError, OffsetOutOfRange, StorageError
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
    from holdfast.broker.storage.topics import Topic

logger = logging.getLogger(__name__)

HIGH_WATERMARK: Final = -1
UNKNOWN: Final = -1

# The file with the start offsets of all logs is written as a whole, so by one request at a time.
_writing: Final[WeakKeyDictionary[DataDirectory, asyncio.Lock]] = WeakKeyDictionary()


@handler(DELETE_RECORDS)
async def delete_records(
    services: Services,
    request: DeleteRecordsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DeleteRecordsResponse:
    return await services.tasks.run(_delete_records(services, request))


async def _delete_records(services: Services, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    done: list[DeleteRecordsPartitionResult] = []
    async for wanted_topic in services.slices.iterate(request.topics):
        topic = services.topics.get(wanted_topic.name)
        # As in Kafka, the last of several entries for one partition counts.
        by_index = {wanted.partition_index: wanted async for wanted in services.slices.iterate(wanted_topic.partitions)}
        results = await services.slices.run(_cut_all(services, topic, by_index.values()))
        done += [result for result in results if not result.error_code]
        response.topics.append(DeleteRecordsTopicResult(wanted_topic.name, results))
    if done:
        try:
            await _store_starts(services)
        except StorageError as error:
            logger.error("%s", error)
            for result in done:
                result.low_watermark, result.error_code = UNKNOWN, ErrorCode.KAFKA_STORAGE_ERROR
    return response


def _cut_all(
    services: Services, topic: Topic | None, wanted: Iterable[DeleteRecordsPartition]
) -> Work[list[DeleteRecordsPartitionResult]]:
    results: list[DeleteRecordsPartitionResult] = []
    for one in wanted:
        yield
        partition = topic.partition(one.partition_index) if topic is not None else None
        if partition is not None:
            yield from partition.ensure_loaded()
        results.append(_cut(services, topic, one))
    return results


def _cut(services: Services, topic: Topic | None, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = topic.partition(index) if topic is not None else None
        if topic is None or partition is None:
            raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal:
            raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if "delete" not in value_of(services.config, topic.overrides, "cleanup.policy"):
            raise PartialError(ErrorCode.POLICY_VIOLATION)
        offset = partition.log.end_offset if wanted.offset == HIGH_WATERMARK else wanted.offset
        return DeleteRecordsPartitionResult(index, partition.log.delete_records_before(offset))
    except PartialError as refused:
        return DeleteRecordsPartitionResult(index, UNKNOWN, refused.code)
    except OffsetOutOfRange:
        return DeleteRecordsPartitionResult(index, UNKNOWN, ErrorCode.OFFSET_OUT_OF_RANGE)
    except LogError as error:
        logger.error("%s", error)
        return DeleteRecordsPartitionResult(index, UNKNOWN, ErrorCode.KAFKA_STORAGE_ERROR)


async def _store_starts(services: Services) -> None:
    async with _writing.setdefault(services.data, asyncio.Lock()):
        await asyncio.to_thread(services.data.write_start_offsets, services.topics.logs(), makes_room=True)
