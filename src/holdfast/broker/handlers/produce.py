"""Produce: record batches into partition logs.

The appends happen at once, on the event loop: into the page cache they cost less than handing them to a thread. With
`flush = always` the reply then waits for the flush that it shares with every other produce of that moment.

Where a batch's records must be looked at, they are unpacked in a worker thread if they may be many, and gone through in
slices. The partitions of a request are served in order, and its connection serves nothing else meanwhile: no later
request of a producer overtakes an earlier one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import NO_REPLY, Disconnect, NoReply, Refused, RequestContext, handles
from holdfast.broker.partition import LEADER_EPOCH, Partition
from holdfast.broker.slices import Work, each
from holdfast.log import LogError, ProducerError, RecordListTooLarge, RecordTooLarge, StorageError
from holdfast.log.inspection import RecordsRefused, asks_for_inspection, inspected
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
    from holdfast.broker.server import Broker
    from holdfast.broker.topics import Topic

FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7

SMALL_PACKED_BYTES: Final = 16 * 1024
SMALL_UNPACKED_BYTES: Final = 128 * 1024
"""Records are unpacked at once if they are no more than this, packed and unpacked."""

_FAULTS: Final = {
    BatchFault.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    BatchFault.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    BatchFault.INVALID_TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
    BatchFault.UNSUPPORTED_MAGIC: ErrorCode.INVALID_RECORD,
    BatchFault.UNSUPPORTED_CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


@handles(PRODUCE, advertised_from=0)
def produce(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> Work[ProduceResponse | NoReply | Coroutine[Any, Any, ProduceResponse]]:
    written: list[Partition] = []
    response = ProduceResponse()
    budget = _Budget()
    topics = yield from _each_partition_once(request, by_id=context.api_version >= FIRST_WITH_TOPIC_IDS)
    for topic_data in topics:
        yield
        if context.api_version >= FIRST_WITH_TOPIC_IDS:
            topic, unknown = broker.topics.by_id(topic_data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, unknown = broker.topics.get(topic_data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers: list[PartitionProduceResponse] = []
        for data in topic_data.partition_data:
            yield
            answers.append((yield from _produce_one(broker, request, context, topic, unknown, data, written, budget)))
        response.responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, answers))
    if request.acks == 0:
        # There is no reply to carry an error, so Kafka closes the connection to make the producer look again.
        if any(answer.error_code for topic_answer in response.responses for answer in topic_answer.partition_responses):
            raise Disconnect("a produce with acks=0 failed")
        return NO_REPLY
    durable = [partition for partition in written if partition.config.flush == "always"]
    return _after_flush(broker, response, durable) if durable else response


class _Budget:
    """How much one request may have looked at."""

    __slots__ = ("records", "unpacked_bytes")

    def __init__(self) -> None:
        self.records = MAX_RECORDS
        self.unpacked_bytes = DEFAULT_MAX_OUTPUT


def _each_partition_once(request: ProduceRequest, *, by_id: bool) -> Generator[None, None, list[TopicProduceData]]:
    """As in Kafka, the last one counts of several for one partition."""
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
        yield from each(
            lambda entry: TopicProduceData(entry[0].name, entry[0].topic_id, list(entry[1].values())), topics.values()
        )
    )


async def _after_flush(broker: Broker, response: ProduceResponse, written: list[Partition]) -> ProduceResponse:
    """Waits until what was written is on the disk itself."""
    try:
        await asyncio.gather(*(broker.flusher.flushed(partition) for partition in written))
    except StorageError as error:
        broker.disk_state.failed(error)
        for topic_answer in response.responses:
            for answer in topic_answer.partition_responses:
                answer.error_code = answer.error_code or ErrorCode.KAFKA_STORAGE_ERROR
    return response


def _produce_one(
    broker: Broker,
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
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise Refused(unknown)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = topic.partition(data.index)
        if partition is not None:
            yield from partition.awake()
        if partition is None or partition.deleted:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = _the_batch(data, context.api_version)
        now_ms = broker.now_ms()
        if asks_for_inspection(partition.log.config, batch.header, now_ms):
            batch = yield from _inspected(broker, context, partition, batch, now_ms, budget)
            if partition.deleted:
                raise Refused(unknown)
        appended = partition.log.append([batch], leader_epoch=LEADER_EPOCH, now_ms=now_ms, records_are_known=True)
        if broker.disk_state.is_full:
            broker.disk_state.worked()
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = appended.log_start_offset
        # A duplicate counts as written: its first copy may still be on the way to the disk.
        written.append(partition)
        # What is stored is there for readers and the disk, whatever becomes of the rest of the request.
        partition.notify()
        broker.flusher.written(partition)
    except Refused as refused:
        answer.error_code, answer.error_message = refused.code, refused.message
    except RecordsRefused as error:
        answer.error_code, answer.error_message = _FAULTS[error.fault], str(error)
        answer.record_errors = [BatchIndexAndErrorMessage(index, message) for index, message in error.errors]
        if partition is not None:
            answer.log_start_offset = partition.log.start_offset
    except BatchError as error:
        answer.error_code, answer.error_message = _FAULTS[error.fault], str(error)
    except WireError as error:
        # The records do not unpack, or to more than we hold. Kafka answers UNKNOWN_SERVER_ERROR to the first.
        answer.error_code, answer.error_message = ErrorCode.INVALID_RECORD, str(error)
    except LogError as error:
        answer.error_code, answer.error_message = _log_error(broker, error), str(error)
    return answer


def _inspected(
    broker: Broker, context: RequestContext, partition: Partition, batch: Batch, now_ms: int, budget: _Budget
) -> Work[Batch]:
    """The batch after its records were looked at, as far as one request may ask for that."""
    log, header = partition.log, batch.header
    size_of([batch], log.config)
    budget.records -= header.record_count
    if budget.records < 0:
        message = f"the records of one request that must be looked at are more than {MAX_RECORDS}; send smaller batches"
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, message)
    packed = batch.data[HEADER_SIZE:]
    records: Buffer | None = None
    if header.codec == Codec.NONE:
        records = packed
    elif len(packed) <= SMALL_PACKED_BYTES:
        with contextlib.suppress(CompressionError):
            records = decompress(header.codec, packed, min(SMALL_UNPACKED_BYTES, budget.unpacked_bytes))
    if records is None:
        return (yield _inspected_later(broker, context, partition, batch, now_ms, budget))  # type: ignore[no-any-return]
    return (yield from inspected(log.config, batch, records, log.directory.name, now_ms))


async def _inspected_later(
    broker: Broker, context: RequestContext, partition: Partition, batch: Batch, now_ms: int, budget: _Budget
) -> Batch:
    """A few at a time, because what a few hundred bytes unpack to can be megabytes."""
    async with broker.unpacking:
        packed, log = batch.data[HEADER_SIZE:], partition.log
        records = await asyncio.to_thread(decompress, batch.header.codec, packed, budget.unpacked_bytes)
        budget.unpacked_bytes -= len(records)
        work = inspected(log.config, batch, records, log.directory.name, now_ms)
        return await broker.slices.finish(work, context.connection)


def _the_batch(data: PartitionProduceData, api_version: int) -> Batch:
    """The one batch that a partition's records must be since magic 2, checked."""
    records = data.records or b""
    _check_front(records)
    found = list(batches(records))
    if len(found) != 1:
        raise Refused(ErrorCode.INVALID_RECORD, f"{len(found)} record batches for one partition, expected one")
    header = found[0].header
    if header.is_transactional:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Holdfast has no transactions; produce without a transactional.id",
        )
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.codec == Codec.ZSTD and api_version < FIRST_WITH_ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    return found[0]


def _check_front(records: Records) -> None:
    """As Kafka before it looks at batches: a cut one is the client's for good, damage may be the network's."""
    if len(records) < HEADER_SIZE:
        raise Refused(ErrorCode.INVALID_RECORD, f"{len(records)} bytes are no record batch")
    if records[16] > MAGIC:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"magic {records[16]}")
    if int.from_bytes(records[8:12], signed=True) > len(records) - LENGTH_OVERHEAD:
        raise Refused(ErrorCode.INVALID_RECORD, "the record batch is cut off")
    if any(records[0:8]):
        raise Refused(ErrorCode.INVALID_RECORD, "a producer's base offset is 0")


def _log_error(broker: Broker, error: LogError) -> int:
    if isinstance(error, ProducerError):
        return error.code
    if isinstance(error, RecordTooLarge):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(error, RecordListTooLarge):
        return ErrorCode.RECORD_LIST_TOO_LARGE
    broker.disk_state.failed(error)
    return ErrorCode.KAFKA_STORAGE_ERROR
