"""Fetch: sends record batches of partition logs from the file to the socket.

A fetch that finds less than `min_bytes` is parked until enough records are appended or `max_wait_ms` has passed. Fetch
sessions (KIP-227) are never granted: a broker may always answer with session 0, and the client then names its
partitions in every request. For one broker without replicas that costs less than keeping sessions. As in Kafka, the
epoch says whether a request names all partitions, also when it ends a session or starts another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH, Partition
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.log import CorruptSegment, LogError, OffsetOutOfRange
from holdfast.wire.apis.fetch import (
    FETCH,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

FIRST_WITH_TOPIC_IDS: Final = 13
NEW_SESSION: Final = 0
NO_SESSION: Final = -1


@handler(FETCH)
def fetch(
    services: Services, request: FetchRequest, context: RequestContext
) -> Work[FetchResponse | Coroutine[Any, Any, FetchResponse]]:
    if request.session_epoch not in (NEW_SESSION, NO_SESSION):
        # The request refers to a session that does not exist.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    request.topics = yield from _each_partition_once(request.topics, by_id=by_id)
    reading = _FetchRead(services, request, by_id=by_id)
    response = yield from reading.read()
    if reading.satisfied or request.max_wait_ms <= 0:
        return response
    return _wait(reading, request.max_wait_ms / 1000)


def _each_partition_once(topics: list[FetchTopic], *, by_id: bool) -> Work[list[FetchTopic]]:
    """As in Kafka, the last of several entries for one partition counts."""
    merged: dict[str | bytes, tuple[FetchTopic, dict[int, FetchPartition]]] = {}
    asked = 0
    for topic in topics:
        yield
        _, by_index = merged.setdefault(topic.topic_id if by_id else topic.topic, (topic, {}))
        asked += len(topic.partitions)
        for wanted in topic.partitions:
            yield
            by_index[wanted.partition] = wanted
    if len(merged) == len(topics) and sum(len(by_index) for _, by_index in merged.values()) == asked:
        return topics
    return (
        yield from sliced_map(
            lambda entry: FetchTopic(entry[0].topic, entry[0].topic_id, list(entry[1].values())), merged.values()
        )
    )


async def _wait(reading: _FetchRead, timeout_seconds: float) -> FetchResponse:
    """Reads again when the partitions have enough bytes or the wait is over."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def grown() -> None:
        if not done.done() and reading.enough():
            done.set_result(None)

    def time_is_up() -> None:
        if not done.done():
            done.set_result(None)

    timer = loop.call_later(timeout_seconds, time_is_up)
    for partition in reading.partitions:
        partition.fetch_waiters.add(grown)
    try:
        grown()
        await done
    finally:
        timer.cancel()
        for partition in reading.partitions:
            partition.fetch_waiters.discard(grown)
    return await reading.services.slices.run(reading.read())


class _FetchRead:
    """One fetch request, applied to the current logs."""

    __slots__ = ("by_id", "min_bytes", "partitions", "request", "satisfied", "services", "wanted")

    def __init__(self, services: Services, request: FetchRequest, *, by_id: bool) -> None:
        self.services = services
        self.request = request
        self.by_id = by_id
        # As in Kafka, a fetch does not wait for more than a reply may hold.
        self.min_bytes = min(request.min_bytes, request.max_bytes, services.config.fetch_max_bytes)
        self.satisfied = False
        self.partitions: list[Partition] = []
        self.wanted: list[FetchPartition] = []
        """The request for each of `partitions`, in the same order."""

    def read(self) -> Work[FetchResponse]:
        self.partitions, self.wanted = [], []
        left = min(self.request.max_bytes, self.services.config.fetch_max_bytes)
        found_bytes = 0
        failed = full = False
        response = FetchResponse()
        topics = self.services.topics
        for wanted_topic in self.request.topics:
            yield
            topic = topics.by_id(wanted_topic.topic_id) if self.by_id else topics.get(wanted_topic.topic)
            answers: list[FetchablePartitionResponse] = []
            for wanted in wanted_topic.partitions:
                yield
                partition = topic.partition(wanted.partition) if topic is not None else None
                if partition is not None and wanted.fetch_offset != partition.log.end_offset:
                    yield from partition.ensure_loaded()
                if partition is None or partition.deleted:
                    unknown_id = topic is None and self.by_id
                    code = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answer = _failed(wanted, code)
                    answer.aborted_transactions = []
                else:
                    answer = self._read_one(partition, wanted, left, found_bytes == 0)
                    size = len(answer.records)  # type: ignore[arg-type]  # always set by _read_one
                    left = max(0, left - size)
                    found_bytes += size
                    # More would not fit. As in Kafka, the fetch does not wait.
                    full = full or (size > 0 and not partition.log.reaches_end(answer.records))  # type: ignore[arg-type]
                failed = failed or answer.error_code != 0
                answers.append(answer)
            response.responses.append(FetchableTopicResponse(wanted_topic.topic, wanted_topic.topic_id, answers))
        self.satisfied = failed or full or found_bytes >= self.min_bytes or not self.partitions
        return response

    def _read_one(
        self, partition: Partition, wanted: FetchPartition, left: int, nothing_yet: bool
    ) -> FetchablePartitionResponse:
        """`nothing_yet`: the first batch of a reply is sent whole, whatever its size, so that readers make progress."""
        log = partition.log
        # For Kafka every negative epoch in a fetch means none: with epoch 0 as the first, no client can be fenced.
        if wanted.current_leader_epoch > LEADER_EPOCH:
            return _failed(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH)
        if wanted.last_fetched_epoch > LEADER_EPOCH:
            return _failed(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        self.partitions.append(partition)
        self.wanted.append(wanted)
        try:
            region: Any = b""
            limit = min(left, wanted.partition_max_bytes)
            if wanted.fetch_offset != log.end_offset and (limit > 0 or nothing_yet):
                region = log.read(wanted.fetch_offset, max(0, limit), at_least_one=nothing_yet) or b""
        except OffsetOutOfRange:
            return _failed(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        except CorruptSegment:
            # The log reported it, once.
            return _failed(wanted, ErrorCode.CORRUPT_MESSAGE)
        except (LogError, OSError) as error:
            logger.error("%s", error)
            return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        end = log.end_offset
        return FetchablePartitionResponse(
            wanted.partition, 0, end, end, log.start_offset, aborted_transactions=None, records=region
        )

    def enough(self) -> bool:
        """Whether a read would return `min_bytes` now, or an error."""
        found_bytes = 0
        for partition, wanted in zip(self.partitions, self.wanted, strict=True):
            if partition.deleted or wanted.fetch_offset < partition.log.start_offset:
                return True
            if wanted.fetch_offset < partition.log.end_offset:
                if self.min_bytes <= 1:
                    return True
                try:
                    region = partition.log.read(wanted.fetch_offset, wanted.partition_max_bytes)
                except (LogError, OSError):
                    # The fetch gets the error from its own read. This is called by a produce, which must not fail.
                    return True
                if region is not None:
                    if not partition.log.reaches_end(region):
                        return True
                    found_bytes += region.length
        return found_bytes >= self.min_bytes


def _failed(wanted: FetchPartition, code: ErrorCode) -> FetchablePartitionResponse:
    return FetchablePartitionResponse(wanted.partition, code, -1, -1, -1, aborted_transactions=None, records=b"")
