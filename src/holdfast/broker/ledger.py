"""The topic in which groups tell what happened to them. Written after the journal, outside of any acknowledgement."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from holdfast.broker.changes import Changes
from holdfast.broker.flusher import Flusher
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.topics import Topics
from holdfast.coordinator.ledger import LEDGER_TOPIC, Event
from holdfast.log import LogError
from holdfast.wire.batch import Batch, parse_header
from holdfast.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
"""Events kept while the topic is being made."""
BATCH_BYTES: Final = 256 * 1024
"""When this is reached, a batch is full. One more event is far from the megabyte that a topic takes by default."""

LEDGER_CONFIGS: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "delete", "max.message.bytes": str(4 * BATCH_BYTES)}
)
"""Set on the topic, whatever the broker's defaults are, and not to be altered: compaction would keep one event of each
group, and a smaller limit would keep batches out. How long events are kept is the operator's to say."""


class LedgerWriter:
    def __init__(self, topics: Topics, changes: Changes, flusher: Flusher) -> None:
        self._topics = topics
        self._changes = changes
        self._flusher = flusher
        self._waiting: deque[tuple[Event, int]] = deque(maxlen=MAX_WAITING)
        self._creating = False

    def write(self, events: list[Event], now_ms: int) -> None:
        """`now_ms` is the wall clock's, for readers of the topic."""
        self._waiting.extend((event, now_ms) for event in events)
        topic = self._topics.get(LEDGER_TOPIC)
        if topic is not None:
            self._flush()
        elif not self._creating:
            self._creating = True
            self._changes.start(self._create())

    async def _create(self) -> None:
        try:
            await self._topics.create(LEDGER_TOPIC, 1, dict(LEDGER_CONFIGS))
            self._flush()
        except LogError as error:
            logger.error("the ledger cannot be made: %s", error)
        finally:
            self._creating = False

    def _flush(self) -> None:
        topic = self._topics.get(LEDGER_TOPIC)
        if topic is None or not self._waiting:
            return
        partition = topic.partitions[0]
        while self._waiting:
            records = self._take()
            view = memoryview(bytearray(encode_batch(records)))
            try:
                partition.log.append(
                    [Batch(parse_header(view), view)], leader_epoch=LEADER_EPOCH, now_ms=records[-1].timestamp
                )
            except LogError as error:
                logger.error("%d events are not in the ledger: %s", len(records), error)
        partition.notify()
        self._flusher.written(partition)

    def _take(self) -> list[Record]:
        """As many of the waiting as make a batch."""
        records: list[Record] = []
        size = 0
        while self._waiting and size < BATCH_BYTES:
            event, at_ms = self._waiting.popleft()
            record = Record(len(records), at_ms, event.group_id.encode(), event.to_json())
            records.append(record)
            size += len(record.key or b"") + len(record.value or b"")
        return records
