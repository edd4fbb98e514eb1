"""The group log on the local disk: the internal topic `__consumer_offsets`, in Kafka's format."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.broker.config.topic import segment_bytes_config
from holdfast.broker.groups.group_log import GroupLogError, PartitionOwner
from holdfast.broker.groups.record_batches import decode_group_batch
from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.broker.storage.flusher import Flusher
from holdfast.broker.storage.partition import LEADER_EPOCH, Partition
from holdfast.broker.storage.topics import OFFSETS_TOPIC, Topic, Topics
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.log import CorruptSegment, LogError, RecordListTooLarge, RecordTooLarge, StorageError
from holdfast.wire.batch import Batch, parse_header
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupRecord, encode_record, partition_for
from holdfast.wire.offset_records import OffsetRecords, encode_offsets
from holdfast.wire.records import Record as LogRecord
from holdfast.wire.records import encode_batch

logger = logging.getLogger(__name__)

KEPT_GROUPS: Final = 10_000
KEPT_NAME_LENGTH: Final = 255
"""The partitions of at most this many groups are remembered, without those whose name is longer and may be hostile."""


class LocalGroupLog:
    """All partitions are on this broker, so none is ever lost."""

    def __init__(
        self,
        topics: Topics,
        flusher: Flusher,
        disk_health: DiskHealth,
        tasks: ShieldedTasks,
        *,
        partition_count: int,
        segment_bytes: int,
    ) -> None:
        """`partition_count` is for a log that has to be created."""
        self._topics = topics
        self._flusher = flusher
        self._disk_health = disk_health
        self._tasks = tasks
        self._overrides = {
            "cleanup.policy": "compact",
            # `offsets.topic.segment.bytes` may be less than topics can set themselves.
            segment_bytes_config(segment_bytes): str(segment_bytes),
            # A group is one record: with thousands of members it is larger than any message should be.
            "max.message.bytes": str(segment_bytes),
        }
        self._creating = asyncio.Lock()
        self._partition_of: dict[str, Partition] = {}
        """Of the first groups that were written to. Java's hash of a name takes a while in Python."""
        self._partitions: Sequence[Partition] = ()
        self.is_created = False
        self.partition_count = partition_count
        topic = topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._use(topic)

    def _use(self, topic: Topic) -> None:
        """For good: the topic can neither grow nor be deleted, because a group's partition depends on their number."""
        self._partitions = topic.partitions
        self.partition_count = len(topic.partitions)
        self.is_created = True

    async def create_if_missing(self) -> None:
        async with self._creating:
            if not self.is_created:
                await self._topics.create(OFFSETS_TOPIC, self.partition_count, self._overrides)
                # An earlier call may have created it, and not have lived to see it: its client disconnected.
                created = self._topics.get(OFFSETS_TOPIC)
                assert created is not None, "it was just created"
                self._use(created)

    def start(self, owner: PartitionOwner) -> None:
        """A log that is created later is empty: there is nothing to replay."""
        if self.is_created:
            owner.partitions_gained(range(self.partition_count))

    # -- append --------------------------------------------------------------------------------------------------------

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        """Stored when the operating system has the records, or with `flush = always` when the disk has."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            partition = self.write(group_id, records, now_ms)
        except (LogError, WireError) as error:
            # WireError: a record that the format cannot hold. The group has to know, or it would wait for ever.
            if isinstance(error, StorageError):
                self._disk_health.write_failed(error)
            else:
                log_event(logger, "group record not stored", logging.ERROR, group=group_id[:100], error=str(error))
            stored.set_exception(_failure(error))
            return stored
        if self._disk_health.is_full:
            self._disk_health.write_ok()
        if partition.fetch_waiters:
            partition.wake_fetchers()
        if partition.config.flush != "os" or partition.log.rolled:
            self._flusher.appended(partition)
        if partition.config.flush == "always":
            return self._tasks.start(self._flushed(partition))
        stored.set_result(None)
        return stored

    def write(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> Partition:
        """Writes the records as one batch, all or none; raises LogError or WireError. Returns their partition."""
        partition = self._partition_of.get(group_id)
        if partition is None:
            partition = self._partitions[partition_for(group_id, self.partition_count)]
            if len(self._partition_of) < KEPT_GROUPS and len(group_id) <= KEPT_NAME_LENGTH:
                self._partition_of[group_id] = partition
        batch = encode_offsets(records, now_ms) if type(records) is OffsetRecords else _encode(records, now_ms)
        partition.log.append([batch], leader_epoch=LEADER_EPOCH, now_ms=now_ms, records_are_known=True)
        return partition

    async def _flushed(self, partition: Partition) -> None:
        try:
            await self._flusher.flush(partition)
        except LogError as error:
            raise _failure(error) from error

    def replay_failed(self, partition: int, reason: str) -> bool:  # noqa: ARG002  # the service has logged it
        """As in Kafka: the other groups of the partition start over. The log will not be readable later."""
        return True

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        """Unreadable records are skipped and logged: one group's record must not cost the other groups theirs."""
        name = f"{OFFSETS_TOPIC}-{partition}"
        log = self._partitions[partition].log

        def skip(error: CorruptSegment) -> None:
            log_event(
                logger,
                "unreadable group records skipped",
                logging.ERROR,
                partition=name,
                file=error.path,
                position=error.position,
                reason=error.reason,
            )

        try:
            for batch in log.batches_from(log.start_offset, skip):
                records, unreadable = decode_group_batch(batch)
                if unreadable is not None:
                    log_event(
                        logger,
                        "unreadable group records skipped",
                        logging.ERROR,
                        partition=name,
                        offset=parse_header(batch).base_offset,
                        error=str(unreadable),
                    )
                yield from records
        except (LogError, WireError) as error:
            raise _failure(error) from error


def _encode(records: Sequence[GroupRecord], now_ms: int) -> Batch:
    data = encode_batch([LogRecord(index, now_ms, *encode_record(*record)) for index, record in enumerate(records)])
    return Batch(parse_header(data), memoryview(bytearray(data)))


def _failure(error: LogError | WireError) -> GroupLogError:
    """With the error code that Kafka's coordinator makes of it."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, RecordTooLarge | RecordListTooLarge | WireError):
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    elif isinstance(error, StorageError):
        code = ErrorCode.NOT_COORDINATOR
    return GroupLogError(code, str(error))
