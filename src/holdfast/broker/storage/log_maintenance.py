"""Periodic work on the logs: retention, compaction, and the checkpoints of recovery points.

All of it runs in worker threads, started by the event loop. A large compaction runs in a separate process
(:mod:`holdfast.log.compaction_process`), and the thread waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.broker.clock import wall_clock_ms
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.metrics import NO_METRICS, Metrics
from holdfast.broker.storage.partition import Partition
from holdfast.broker.storage.topics import Topics
from holdfast.broker.structured_log import log_event
from holdfast.log import CompactionSweep, DataDirectory, LogError

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 60.0
"""Kafka's default interval (log.flush.offset.checkpoint.interval.ms)."""
MIN_BACKOFF_SECONDS: Final = 0.1
"""The minimum pause: with log.cleaner.backoff.ms=0, looking for logs to compact would keep a core busy."""
WORK_SECONDS: Final = 0.001
BREAK_RATIO: Final = 0.5
MAX_BREAK_SECONDS: Final = 0.01
"""Compacting a small log or opening thousands of unloaded ones keeps the interpreter busy, which runs one thread at a
time. After each millisecond of work, or a longer batch, the thread sleeps half as long as it worked. The event loop can
then serve requests without competing for the interpreter after each write."""
SWITCH_SECONDS: Final = 0.0001
"""The interpreter's switch interval while logs are compacted; the default is 5 ms. The event loop's thread releases the
interpreter with every write to a log and has to get it back each time: at a thousand records a second during a
compaction, half of the produces waited more than twice as long with the default."""


class LogMaintenance:
    def __init__(
        self,
        config: DynamicBrokerConfig,
        data: DataDirectory,
        topics: Topics,
        *,
        metrics: Metrics = NO_METRICS,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config = config
        self._data = data
        self._topics = topics
        self._metrics = metrics
        self._now_ms = now_ms
        self._tasks: list[asyncio.Task[None]] = []
        self._jobs: set[asyncio.Future[None]] = set()
        self._is_stopping = False
        self._last_break = 0.0
        self._reconfigured = asyncio.Event()

    def start(self) -> None:
        config = self._config.current
        retention_seconds = config.log_retention_check_interval_ms / 1000
        self._tasks = [
            asyncio.create_task(self._every(lambda: retention_seconds, self.apply_retention)),
            asyncio.create_task(self._every(lambda: CHECKPOINT_SECONDS, self.write_checkpoints)),
        ]
        if config.log_cleaner_enable:
            self._tasks.append(asyncio.create_task(self._every(self._cleaner_backoff_seconds, self.compact)))

    def _cleaner_backoff_seconds(self) -> float:
        return max(self._config.current.log_cleaner_backoff_ms / 1000, MIN_BACKOFF_SECONDS)

    async def stop(self) -> None:
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._jobs, return_exceptions=True)

    def reconfigured(self, _config: BrokerConfig) -> None:
        """Intervals may have changed, so sleeping tasks compute their delay again."""
        self._reconfigured.set()
        self._reconfigured = asyncio.Event()

    async def _sleep(self, seconds: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + seconds() - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reconfigured.wait(), left)

    async def _every(self, seconds: Callable[[], float], work: Callable[[], None]) -> None:
        while True:
            await self._sleep(seconds)
            # A thread cannot be cancelled. `stop` must wait for it, or it would work on closed logs.
            job = asyncio.ensure_future(asyncio.to_thread(work))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            try:
                await asyncio.shield(job)
            except (LogError, OSError) as error:
                logger.error("%s", error)
            except Exception:
                # A bug. The task continues, because without retention and compaction the disk would fill up.
                logger.exception("log maintenance failed; it is tried again at its next time")

    def apply_retention(self) -> None:
        """Deletes the segments that retention.ms and retention.bytes no longer allow."""
        for partition in list(self._topics.partitions()):
            if self._yield_or_stop():
                return
            self._apply_retention(partition)

    def _apply_retention(self, partition: Partition) -> None:
        try:
            deleted = partition.log.apply_retention(self._now_ms())
        except (LogError, OSError) as error:
            # An error of one log does not keep the others from being cleaned up.
            logger.error("%s", error)
            return
        for segment in deleted:
            log_event(
                logger,
                "segment deleted",
                partition=partition,
                base_offset=segment.base_offset,
                bytes=segment.size,
                by=segment.reason,
            )

    def compact(self) -> None:
        """Compacts the logs that are dirty enough, one after the other."""
        with _short_switch_interval(), CompactionSweep() as sweep:
            for partition in list(self._topics.partitions()):
                if partition.config.compacts and not self._is_stopping:
                    self._compact(partition, sweep)

    def _compact(self, partition: Partition, sweep: CompactionSweep) -> None:
        began = time.monotonic()
        try:
            done = partition.log.compact(self._now_ms(), self._yield_or_stop, sweep)
            if done is None:
                return
            self._data.write_cleaner_offsets({(partition.topic_name, partition.index): partition.log})
        except (LogError, OSError) as error:
            # An error of one log does not keep the others from being compacted.
            logger.error("%s", error)
            return
        seconds = time.monotonic() - began
        self._metrics.compacted(str(partition), seconds)
        log_event(logger, "log compacted", partition=partition, seconds=round(seconds, 3), **done._asdict())

    def _yield_or_stop(self) -> bool:
        """Called by a compaction after each batch, and by retention before each log."""
        worked = time.monotonic() - self._last_break
        if worked > WORK_SECONDS:
            time.sleep(min(worked * BREAK_RATIO, MAX_BREAK_SECONDS))
            self._last_break = time.monotonic()
        return self._is_stopping

    def write_checkpoints(self) -> None:
        self._topics.write_checkpoints()


@contextlib.contextmanager
def _short_switch_interval() -> Iterator[None]:
    """For one thread at a time: each restores the interval that it found."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
