"""What must be done now and then: old segments go, compacted topics are compacted, recovery points written down.

All of it in worker threads; the event loop only says when.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.broker.partition import Partition
from holdfast.log import LogError

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 60.0
"""Kafka's interval, too (log.flush.offset.checkpoint.interval.ms)."""
SHORTEST_BACKOFF_SECONDS: Final = 0.1
"""Looking for logs to compact without any pause (log.cleaner.backoff.ms=0) would keep a core busy."""
WORK_SECONDS: Final = 0.001
BREAK_SECONDS: Final = 0.0001
"""Compaction is work for the interpreter, which runs one thread at a time and lets a busy one run for 5 ms. With a
short break after each millisecond the event loop, too, gets its turn within about that time."""


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Future[None]] = set()
        self._is_stopping = False
        self._last_break = 0.0

    def start(self) -> None:
        config = self._broker.config
        retention_seconds = config.log_retention_check_interval_ms / 1000
        self._tasks = [
            asyncio.create_task(self._every(retention_seconds, self.apply_retention)),
            asyncio.create_task(self._every(CHECKPOINT_SECONDS, self.write_checkpoints)),
        ]
        if config.log_cleaner_enable:
            backoff_seconds = max(config.log_cleaner_backoff_ms / 1000, SHORTEST_BACKOFF_SECONDS)
            self._tasks.append(asyncio.create_task(self._every(backoff_seconds, self.compact)))

    async def stop(self) -> None:
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._under_way, return_exceptions=True)

    async def _every(self, seconds: float, work: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            # A thread cannot be cancelled: `stop` must find it and wait, or it would work on closed logs.
            job = asyncio.ensure_future(asyncio.to_thread(work))
            self._under_way.add(job)
            job.add_done_callback(self._under_way.discard)
            try:
                await asyncio.shield(job)
            except (LogError, OSError) as error:
                logger.error("%s", error)

    def apply_retention(self) -> None:
        """Deletes the segments that retention.ms and retention.bytes no longer allow."""
        for partition in list(self._broker.topics.partitions()):
            for segment in partition.log.apply_retention(self._broker.now_ms()):
                logger.info("%s: segment %d deleted (%s)", partition, segment.base_offset, segment.reason)

    def compact(self) -> None:
        """Compacts the logs that are dirty enough, one after the other."""
        for partition in list(self._broker.topics.partitions()):
            if partition.config.compacts and not self._is_stopping:
                self._compact(partition)

    def _compact(self, partition: Partition) -> None:
        try:
            done = partition.log.compact(self._broker.now_ms(), self._take_a_break_or_stop)
            if done is None:
                return
            self._broker.data.write_cleaner_offsets({(partition.topic_name, partition.index): partition.log})
        except LogError as error:
            # The others shall not wait for one that cannot be compacted.
            logger.error("%s", error)
            return
        logger.info(
            "%s: compacted %d bytes in %d segments to %d in %d, %d of %d records kept, %d tombstones dropped",
            partition,
            done.bytes_before,
            done.segments_before,
            done.bytes_after,
            done.segments_after,
            done.records_after,
            done.records_before,
            done.tombstones_dropped,
        )

    def _take_a_break_or_stop(self) -> bool:
        """Asked by a compaction after each batch."""
        if time.monotonic() - self._last_break > WORK_SECONDS:
            time.sleep(BREAK_SECONDS)
            self._last_break = time.monotonic()
        return self._is_stopping

    def write_checkpoints(self) -> None:
        self._broker.topics.write_checkpoints()
