"""The topic `__group_ledger` with the events of groups. It is written after the group log, and replies do not wait for
it.

All events of one iteration of the event loop are one batch, which is written after the iteration's replies are sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from holdfast.broker.storage.flusher import Flusher
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.storage.topics import Topics
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, GroupEvent
from holdfast.log import LogError
from holdfast.wire.batch import Batch, parse_header
from holdfast.wire.errors import WireError
from holdfast.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000
"""Events kept while the topic is being created."""
MAX_PER_FLUSH: Final = 100
"""When this many events are pending, they are written at once. Writing more would block the event loop."""
BATCH_BYTES: Final = 256 * 1024
"""A batch of this size is full. With one more event it is still far below a topic's default limit of one megabyte."""

EVENT_LOG_CONFIGS: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "delete", "max.message.bytes": str(4 * BATCH_BYTES)}
)
"""Set on the topic whatever the broker's defaults are, and not alterable. Compaction would keep one event of each
group, and a smaller limit would reject batches. The operator decides how long events are kept."""


class EventLog(Protocol):
    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        """`now_ms` is wall-clock time, for readers of the log."""


class EventLogWriter:
    def __init__(self, topics: Topics, tasks: ShieldedTasks, flusher: Flusher) -> None:
        self._topics = topics
        self._tasks = tasks
        self._flusher = flusher
        self._pending: deque[tuple[GroupEvent, int]] = deque()
        self._is_scheduled = False

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        """Takes the events. They are written after the replies of this iteration of the event loop are sent."""
        self._pending.extend((event, now_ms) for event in events)
        if len(self._pending) >= MAX_PER_FLUSH:
            self._flush()
        if len(self._pending) > MAX_PENDING:
            self._drop_oldest(len(self._pending) - MAX_PENDING)
        if self._pending and not self._is_scheduled:
            self._is_scheduled = True
            self._tasks.start(self._write_pending())

    async def _write_pending(self) -> None:
        await asyncio.sleep(0)  # the replies of this iteration leave first (docs/decisions/0025)
        try:
            if self._topics.get(LEDGER_TOPIC) is None:
                await self._topics.create(LEDGER_TOPIC, 1, dict(EVENT_LOG_CONFIGS))
            self._flush()
        except LogError as error:
            logger.error("cannot create the topic for group events: %s", error)
        finally:
            self._is_scheduled = False

    def _flush(self) -> None:
        topic = self._topics.get(LEDGER_TOPIC)
        if topic is None or not self._pending:
            return
        partition = topic.partitions[0]
        while self._pending:
            records = self._next_batch()
            view = memoryview(bytearray(encode_batch(records)))
            try:
                partition.log.append(
                    [Batch(parse_header(view), view)],
                    leader_epoch=LEADER_EPOCH,
                    now_ms=records[-1].timestamp,
                    records_are_known=True,
                )
            except (LogError, WireError) as error:
                logger.error("%d group events are not stored: %s", len(records), error)
        partition.wake_fetchers()
        self._flusher.appended(partition)

    def _drop_oldest(self, count: int) -> None:
        for _ in range(count):
            self._pending.popleft()
        logger.error("%d group events are not stored: the topic for them is not created yet", count)

    def _next_batch(self) -> list[Record]:
        """As many of the pending events as one batch can hold."""
        records: list[Record] = []
        size = 0
        while self._pending and size < BATCH_BYTES:
            event, at_ms = self._pending.popleft()
            record = Record(len(records), at_ms, event.group_id.encode(), event.to_json())
            records.append(record)
            size += len(record.key or b"") + len(record.value or b"")
        return records
