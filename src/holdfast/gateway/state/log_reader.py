"""Reads a partition of the group log from its start, for a replay.

Bytes are fetched on the event loop. The thread of the replay splits them into batches and decodes them, while the next
ones are fetched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.broker.structured_log import log_event
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.codes import error_name
from holdfast.gateway.state.ports import Cluster, Connection
from holdfast.gateway.state.producer import pauses
from holdfast.gateway.state.topic import StateTopic
from holdfast.wire.apis.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, Buffer, parse_header
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 1 << 20
"""Kafka returns at least one batch, however large."""

_MAX_WAIT_MS: Final = 500
_NO_REFRESH: Final = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE})
"""Answers of the leader."""
_LOGGED_ATTEMPT: Final = 8
"""After some seconds."""
_EARLIEST: Final = -2
_LATEST: Final = -1


class LogTruncated(Exception):
    """The log ends before a record that Kafka confirmed."""


class LogReader:
    """Runs on the event loop, with a connection of its own."""

    def __init__(self, cluster: Cluster, topic: StateTopic, partition: int) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._connection: Connection | None = None

    async def fetch(self, offset: int) -> tuple[Buffer, int]:
        """Batches from `offset` on, or from the start of the log if that is higher, and the offset of the fetch.

        The last one may be incomplete. Waits for them for as long as it takes. Raises StateTopicError and LogTruncated.
        """
        pause = pauses()
        refresh, failure, attempts = False, "", 0
        while True:
            try:
                connection = await self._connected(refresh=refresh)
                answer = await self._ask(connection, offset)
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    offset = await self._start_above(connection, offset)
                elif answer.error_code == ErrorCode.NONE and answer.records:
                    # Kafka's answers have bytes. Only our own broker passes on files.
                    assert isinstance(answer.records, bytes | bytearray | memoryview)
                    return answer.records, offset
                refresh, failure = (
                    answer.error_code not in _NO_REFRESH,
                    f"Kafka answers {error_name(answer.error_code)}",
                )
            except (KafkaUnreachable, KafkaRefused) as error:
                refresh, failure = True, str(error)
            if refresh:
                await self._check_topic()
            attempts += 1
            if attempts == _LOGGED_ATTEMPT:
                name = f"{self._topic.name}-{self._partition}"
                log_event(logger, "group log cannot be read yet", logging.WARNING, partition=name, error=failure)
            await asyncio.sleep(next(pause))

    async def _connected(self, *, refresh: bool) -> Connection:
        leader = await self._cluster.leader_of(self._topic.name, self._partition, refresh=refresh)
        connection = self._connection
        if connection is None or connection.is_closed or connection.node_id != leader:
            self.close()
            self._connection = connection = await self._cluster.open_connection(leader)
        return connection

    async def _ask(self, connection: Connection, offset: int) -> FetchablePartitionResponse:
        partition = FetchPartition(self._partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(self._topic.name, self._topic.id, [partition])],
        )
        response: FetchResponse = await connection.ask(request)
        for topic in response.responses:
            for answer in topic.partitions:
                return answer
        return FetchablePartitionResponse(error_code=response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _start_above(self, connection: Connection, offset: int) -> int:
        """The start of a log that has lost its first records, to DeleteRecords for example."""
        start, end = await self._offset_of(connection, _EARLIEST), await self._offset_of(connection, _LATEST)
        if start <= offset > end:
            raise LogTruncated(
                f"partition {self._partition} of {self._topic.name} ends at offset {end}, but Kafka has confirmed "
                f"records up to offset {offset}"
            )
        return max(start, offset)

    async def _offset_of(self, connection: Connection, timestamp: int) -> int:
        partition = ListOffsetsPartition(self._partition, timestamp=timestamp)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(self._topic.name, [partition])])
        response: ListOffsetsResponse = await connection.ask(request)
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                    return answer.offset
        raise KafkaUnreachable(f"the offsets of partition {self._partition} of {self._topic.name} are not known")

    async def _check_topic(self) -> None:
        try:
            await self._topic.check_same_topic()
        except KafkaUnreachable:
            return

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class FetchedBatch(NamedTuple):
    header: BatchHeader
    data: Buffer


def split(records: Buffer, offset: int) -> Iterator[FetchedBatch]:
    """The complete batches from `offset` on. Kafka returns the whole batch that contains the offset of a fetch."""
    view = memoryview(records)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = parse_header(view, position)
        end = position + header.size
        if header.magic != MAGIC or header.size < HEADER_SIZE or end > len(view):
            return
        if header.last_offset >= offset:
            yield FetchedBatch(header, view[position:end])
        position = end
