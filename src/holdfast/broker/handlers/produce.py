"""Produce: record batches into partition logs.

The appends happen at once, on the event loop: into the page cache they cost less than handing them to a thread. With
`flush = always` the reply then waits for the flush that it shares with every other produce of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import NO_REPLY, Disconnect, NoReply, Refused, RequestContext, handles
from holdfast.broker.partition import LEADER_EPOCH, Partition
from holdfast.log import LogError, ProducerError, RecordListTooLarge, RecordTooLarge, StorageError
from holdfast.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast.wire.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, Batch, BatchError, BatchFault, batches
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.message import Records

if TYPE_CHECKING:
    from holdfast.broker.server import Broker
    from holdfast.broker.topics import Topic

FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 7
ZSTD: Final = 4

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
) -> ProduceResponse | NoReply | Coroutine[Any, Any, ProduceResponse]:
    written: list[Partition] = []
    response = ProduceResponse()
    try:
        for topic_data in request.topic_data:
            if context.api_version >= FIRST_WITH_TOPIC_IDS:
                topic, unknown = broker.topics.by_id(topic_data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic, unknown = broker.topics.get(topic_data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers = [
                _produce_one(broker, request, context, topic, unknown, data, written)
                for data in topic_data.partition_data
            ]
            response.responses.append(TopicProduceResponse(topic_data.name, topic_data.topic_id, answers))
    finally:
        # What is stored is there for readers and the disk, whatever becomes of the rest of the request.
        for partition in written:
            partition.notify()
            broker.flusher.written(partition)
    if request.acks == 0:
        # There is no reply to carry an error, so Kafka closes the connection to make the producer look again.
        if any(answer.error_code for topic_answer in response.responses for answer in topic_answer.partition_responses):
            raise Disconnect("a produce with acks=0 failed")
        return NO_REPLY
    durable = [partition for partition in written if partition.config.flush == "always"]
    return _after_flush(broker, response, durable) if durable else response


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
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(data.index, 0, -1)
    try:
        if request.acks not in (-1, 0, 1):
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise Refused(unknown)
        if topic.internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = topic.partition(data.index)
        if partition is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = _the_batch(data, context.api_version)
        appended = partition.log.append([batch], leader_epoch=LEADER_EPOCH, now_ms=broker.now_ms())
        if broker.disk_state.is_full:
            broker.disk_state.worked()
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = appended.log_start_offset
        # A duplicate counts as written: its first copy may still be on the way to the disk.
        written.append(partition)
    except Refused as refused:
        answer.error_code, answer.error_message = refused.code, refused.message
    except BatchError as error:
        answer.error_code, answer.error_message = _FAULTS[error.fault], str(error)
    except WireError as error:
        # The records do not unpack, or to more than we hold. Kafka answers UNKNOWN_SERVER_ERROR to the first.
        answer.error_code, answer.error_message = ErrorCode.INVALID_RECORD, str(error)
    except LogError as error:
        answer.error_code, answer.error_message = _log_error(broker, error), str(error)
    return answer


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
    if header.codec == ZSTD and api_version < FIRST_WITH_ZSTD:
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
