"""Produce: appends record batches to partition logs.

Appends run on the event loop, because writing to the page cache costs less than passing the work to a thread. With
`flush = always` the reply then waits for the flush, which it shares with other produces.

Some batches require an inspection of their records. Large ones are decompressed in a worker thread and inspected in
slices. The partitions of a request are served in order, and its connection serves no other request meanwhile, so a
later request of a producer never overtakes an earlier one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import NO_REPLY, Disconnect, NoReply, PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH, Partition
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.log import LogError, ProducerError, RecordListTooLarge, RecordTooLarge, StorageError
from holdfast.log.inspection import RecordsRefused, inspected, needs_inspection
from holdfast.log.placing import size_of
from holdfast.wire.apis.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast.wire.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAX_RECORDS, Batch, BatchError, BatchFault, batches
from holdfast.wire.compression import DEFAULT_MAX_OUTPUT, Buffer, Codec, CompressionError, decompress
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.message import Records

if TYPE_CHECKING:
    from holdfast.broker.storage.topics import Topic

FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7

SMALL_PACKED_BYTES: Final = 16 * 1024
SMALL_UNPACKED_BYTES: Final = 128 * 1024
"""Records are decompressed on the event loop up to these sizes, compressed and decompressed."""

_FAULTS: Final = {
    BatchFault.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    BatchFault.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    BatchFault.INVALID_TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    BatchFault.UNSUPPORTED_MAGIC: ErrorCode.INVALID_RECORD,
    BatchFault.UNSUPPORTED_CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


@handler(PRODUCE, advertised_from=0)
def produce(
    services: Services, request: ProduceRequest, context: RequestContext
) -> Work[ProduceResponse | NoReply | Coroutine[Any, Any, ProduceResponse]]:
    written: list[Partition] = []
    response = ProduceResponse()
    budget = _Budget()
    topics = yield from _each_partition_once(request, by_id=context.api_version >= FIRST_WITH_TOPIC_IDS)
    for topic_data in topics:
        yield
        if context.api_version >= FIRST_WITH_TOPIC_IDS:
            topic, unknown = services.topics.by_id(topic_data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, unknown = services.topics.get(topic_data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers: list[PartitionProduceResponse] = []
        for data in topic_data.partition_data:
            yield
            answers.append((yield from _produce_one(services, request, context, topic, unknown, data, written, budget)))
        response.responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, answers))
    if request.acks == 0:
        # There is no reply to carry an error, so Kafka closes the connection to make the producer refresh its metadata.
        if any(answer.error_code for topic_answer in response.responses for answer in topic_answer.partition_responses):
            raise Disconnect("a produce with acks=0 failed")
        return NO_REPLY
    durable = [partition for partition in written if partition.config.flush == "always"]
    return _after_flush(services, response, durable) if durable else response


class _Budget:
    """How much of one request may be inspected."""

    __slots__ = ("records", "unpacked_bytes")

    def __init__(self) -> None:
        self.records = MAX_RECORDS
        self.unpacked_bytes = DEFAULT_MAX_OUTPUT


def _each_partition_once(request: ProduceRequest, *, by_id: bool) -> Generator[None, None, list[TopicProduceData]]:
    """As in Kafka, the last of several entries for one partition counts."""
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        return request.topic_data
    topics: dict[str | bytes, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic in request.topic_data:
        yield
        _, by_index = topics.setdefault(topic.topic_id if by_id else topic.name, (topic, {}))
        for data in topic.partition_data:
            yield
            by_index[data.index] = data
    return (
        yield from sliced_map(
            lambda entry: TopicProduceData(entry[0].name, entry[0].topic_id, list(entry[1].values())), topics.values()
        )
    )


async def _after_flush(services: Services, response: ProduceResponse, written: list[Partition]) -> ProduceResponse:
    """Waits until the records are on the disk."""
    try:
        await asyncio.gather(*(services.flusher.flush(partition) for partition in written))
    except StorageError as error:
        services.disk_health.write_failed(error)
        for topic_answer in response.responses:
            for answer in topic_answer.partition_responses:
                answer.error_code = answer.error_code or ErrorCode.KAFKA_STORAGE_ERROR
    return response


def _produce_one(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    topic: Topic | None,
    unknown: ErrorCode,
    data: PartitionProduceData,
    written: list[Partition],
    budget: _Budget,
) -> Work[PartitionProduceResponse]:
    answer = PartitionProduceResponse(data.index, 0, -1)
    partition: Partition | None = None
    try:
        if request.acks not in (-1, 0, 1):
            raise PartialError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise PartialError(unknown)
        if topic.internal:
            raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = topic.partition(data.index)
        if partition is not None:
            yield from partition.ensure_loaded()
        if partition is None or partition.deleted:
            raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = _single_batch(data, context.api_version)
        now_ms = services.now_ms()
        if needs_inspection(partition.log.config, batch.header, now_ms):
            batch = yield from _inspected(services, context, partition, batch, now_ms, budget)
            if partition.deleted:
                raise PartialError(unknown)
        _append(services, partition, batch, now_ms, answer)
        # A duplicate counts as written, because its first copy may not be flushed yet.
        written.append(partition)
    except PartialError as error:
        answer.error_code, answer.error_message = error.code, error.message
    except (WireError, LogError) as error:
        answer.error_code, answer.error_message = _error_code(services, error), str(error)
        if isinstance(error, RecordsRefused) and partition is not None:
            answer.record_errors = [BatchIndexAndErrorMessage(index, message) for index, message in error.errors]
            answer.log_start_offset = partition.log.start_offset
    return answer


def _append(
    services: Services, partition: Partition, batch: Batch, now_ms: int, answer: PartitionProduceResponse
) -> None:
    appended = partition.log.append([batch], leader_epoch=LEADER_EPOCH, now_ms=now_ms, records_are_known=True)
    if services.disk_health.is_full:
        services.disk_health.write_ok()
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.log_start_offset
    # Stored records become available to fetches and the flusher, even if the rest of the request fails.
    if partition.fetch_waiters:
        partition.wake_fetchers()
    services.flusher.appended(partition)


def _inspected(
    services: Services, context: RequestContext, partition: Partition, batch: Batch, now_ms: int, budget: _Budget
) -> Work[Batch]:
    """The batch after its records were inspected, within the budget of one request."""
    log, header = partition.log, batch.header
    size_of([batch], log.config)
    budget.records -= header.record_count
    if budget.records < 0:
        message = f"the records of one request that must be inspected are more than {MAX_RECORDS}; send smaller batches"
        raise PartialError(ErrorCode.MESSAGE_TOO_LARGE, message)
    packed = batch.data[HEADER_SIZE:]
    records: Buffer | None = None
    if header.codec == Codec.NONE:
        records = packed
    elif len(packed) <= SMALL_PACKED_BYTES:
        with contextlib.suppress(CompressionError):
            records = decompress(header.codec, packed, min(SMALL_UNPACKED_BYTES, budget.unpacked_bytes))
    if records is None:
        return (yield _inspected_later(services, context, partition, batch, now_ms, budget))  # type: ignore[no-any-return]
    return (yield from inspected(log.config, batch, records, log.directory.name, now_ms))


async def _inspected_later(
    services: Services, context: RequestContext, partition: Partition, batch: Batch, now_ms: int, budget: _Budget
) -> Batch:
    """Only a few at a time, because a few hundred bytes can decompress to megabytes."""
    async with services.decompression_slots:
        packed, log = batch.data[HEADER_SIZE:], partition.log
        records = await asyncio.to_thread(decompress, batch.header.codec, packed, budget.unpacked_bytes)
        budget.unpacked_bytes -= len(records)
        work = inspected(log.config, batch, records, log.directory.name, now_ms)
        return await services.slices.run(work, context.session)


def _single_batch(data: PartitionProduceData, api_version: int) -> Batch:
    """The validated batch. Since magic 2, the records of a partition in a request are exactly one batch."""
    records = data.records or b""
    _check_front(records)
    found = list(batches(records))
    if len(found) != 1:
        raise PartialError(ErrorCode.INVALID_RECORD, f"{len(found)} record batches for one partition, expected one")
    header = found[0].header
    if header.is_transactional:
        raise PartialError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Holdfast has no transactions; produce without a transactional.id",
        )
    if header.is_control:
        raise PartialError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.codec == Codec.ZSTD and api_version < FIRST_WITH_ZSTD:
        raise PartialError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    return found[0]


def _check_front(records: Records) -> None:
    """As in Kafka, before batches are parsed: truncation is an error of the client, corruption may be one of the
    network."""
    if len(records) < HEADER_SIZE:
        raise PartialError(ErrorCode.INVALID_RECORD, f"{len(records)} bytes are not a record batch")
    if records[16] > MAGIC:
        raise PartialError(ErrorCode.CORRUPT_MESSAGE, f"magic {records[16]}")
    if int.from_bytes(records[8:12], signed=True) > len(records) - LENGTH_OVERHEAD:
        raise PartialError(ErrorCode.INVALID_RECORD, "the record batch is cut off")
    if any(records[0:8]):
        raise PartialError(ErrorCode.INVALID_RECORD, "a producer's base offset is 0")


def _error_code(services: Services, error: WireError | LogError) -> int:
    if isinstance(error, BatchError):
        return _FAULTS[error.fault]
    if isinstance(error, WireError):
        # The records cannot be decompressed, or exceed the limit. Kafka answers UNKNOWN_SERVER_ERROR in the first case.
        return ErrorCode.INVALID_RECORD
    if isinstance(error, ProducerError):
        return error.code
    if isinstance(error, RecordTooLarge):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(error, RecordListTooLarge):
        return ErrorCode.RECORD_LIST_TOO_LARGE
    services.disk_health.write_failed(error)
    return ErrorCode.KAFKA_STORAGE_ERROR
