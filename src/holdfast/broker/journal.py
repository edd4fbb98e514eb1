"""Where the coordinator's facts are kept: the internal topic `__consumer_offsets`, as Kafka keeps them.

One small interface, append and replay, so that the facts can have another home one day.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from holdfast.broker.log_lines import say
from holdfast.broker.partition import LEADER_EPOCH, Partition
from holdfast.broker.topic_config import segment_bytes_config
from holdfast.broker.topics import OFFSETS_TOPIC, Topic, Topics
from holdfast.coordinator.effects import Record
from holdfast.log import CorruptSegment
from holdfast.wire.batch import Batch, parse_header
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import (
    GroupRecordKey,
    GroupRecordValue,
    decode_record,
    encode_key,
    encode_value,
    partition_for,
)
from holdfast.wire.records import Record as LogRecord
from holdfast.wire.records import decode_batch, encode_batch

logger = logging.getLogger(__name__)

Fact = tuple[GroupRecordKey, GroupRecordValue | None]


class GroupJournal:
    """The records of all groups, each group's in one partition."""

    def __init__(self, topics: Topics, partition_count: int, segment_bytes: int) -> None:
        self._topics = topics
        self._overrides = {
            "cleanup.policy": "compact",
            # `offsets.topic.segment.bytes` may be less than topics can set themselves.
            segment_bytes_config(segment_bytes): str(segment_bytes),
            # A group is one record: with thousands of members it is larger than any message should be.
            "max.message.bytes": str(segment_bytes),
        }
        self._creating = asyncio.Lock()
        topic = topics.get(OFFSETS_TOPIC)
        self.partition_count = len(topic.partitions) if topic is not None else partition_count

    @property
    def exists(self) -> bool:
        return self._topics.get(OFFSETS_TOPIC) is not None

    async def ensure(self) -> None:
        """Makes the topic, with the first group that needs it."""
        async with self._creating:
            if not self.exists:
                await self._topics.create(OFFSETS_TOPIC, self.partition_count, self._overrides)

    def _topic(self) -> Topic:
        topic = self._topics.get(OFFSETS_TOPIC)
        assert topic is not None, "the journal is written before it was made"
        return topic

    def append(self, group_id: str, records: Sequence[Record], now_ms: int) -> Partition:
        """Stores the records in one batch, all or none; raises LogError. Returns the partition they are in."""
        partition = self._topic().partitions[partition_for(group_id, self.partition_count)]
        data = encode_batch(
            [
                LogRecord(index, now_ms, encode_key(key), None if value is None else encode_value(value), ())
                for index, (key, value) in enumerate(records)
            ]
        )
        view = memoryview(bytearray(data))
        partition.log.append(
            [Batch(parse_header(view), view)], leader_epoch=LEADER_EPOCH, now_ms=now_ms, records_are_known=True
        )
        return partition

    def replay(self, index: int) -> Iterator[Fact]:
        """All records of one partition, in order. For a worker thread.

        Unreadable records are skipped and logged: one group's record must not cost the other groups theirs.
        """
        log = self._topic().partitions[index].log

        def skip(error: CorruptSegment) -> None:
            say(
                logger,
                "unreadable group records skipped",
                logging.ERROR,
                partition=f"{OFFSETS_TOPIC}-{index}",
                file=error.path,
                position=error.position,
                reason=error.reason,
            )

        for batch in log.batches_from(log.start_offset, skip):
            facts, unreadable = _facts_of(batch)
            if unreadable is not None:
                say(
                    logger,
                    "group facts left out; they cannot be read",
                    logging.ERROR,
                    partition=f"{OFFSETS_TOPIC}-{index}",
                    offset=parse_header(batch).base_offset,
                    error=str(unreadable),
                )
            yield from facts


def _facts_of(batch: bytes) -> tuple[list[Fact], WireError | None]:
    """What can be read of a batch, and why the rest cannot."""
    facts: list[Fact] = []
    unreadable: WireError | None = None
    try:
        records = decode_batch(batch)
    except WireError as error:
        return facts, error
    for record in records:
        try:
            decoded = None if record.key is None else decode_record(record.key, record.value)
        except WireError as error:
            unreadable = error
            continue
        if decoded is not None:
            facts.append(decoded)
    return facts, unreadable
