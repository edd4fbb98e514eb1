"""What must be done now and then: old segments go, compacted topics are compacted, recovery points written down.

All of it in worker threads; the event loop only says when. Where there is much to compact, the thread waits for a
process that does it (:mod:`holdfast.log.compaction_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from holdfast.broker.log_lines import say
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
BREAK_SHARE: Final = 0.5
LONGEST_BREAK_SECONDS: Final = 0.01
"""Compaction of a small log, and looking into thousands at rest, is work for the interpreter, which runs one thread at
a time. After each millisecond, or a batch that took longer, there is a break half as long as the work: the event loop
gets through what has come in without having to win its turn back after each write."""
SWITCH_SECONDS: Final = 0.0001
"""While logs are compacted: how long a thread waits for the interpreter before it asks for its turn; by default 5 ms.
The event loop gives it up with every write to a log and must have it back each time: of a load of a thousand records a
second beside a compaction, half waited more than twice as long with the default."""


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Future[None]] = set()
        self._is_stopping = False
        self._last_break = 0.0
        self._reconfigured = asyncio.Event()

    def start(self) -> None:
        config = self._broker.config
        retention_seconds = config.log_retention_check_interval_ms / 1000
        self._tasks = [
            asyncio.create_task(self._every(lambda: retention_seconds, self.apply_retention)),
            asyncio.create_task(self._every(lambda: CHECKPOINT_SECONDS, self.write_checkpoints)),
        ]
        if config.log_cleaner_enable:
            self._tasks.append(asyncio.create_task(self._every(self._cleaner_backoff_seconds, self.compact)))

    def _cleaner_backoff_seconds(self) -> float:
        return max(self._broker.config.log_cleaner_backoff_ms / 1000, SHORTEST_BACKOFF_SECONDS)

    async def stop(self) -> None:
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._under_way, return_exceptions=True)

    def reconfigured(self) -> None:
        """What waits for its time looks again when that is."""
        self._reconfigured.set()
        self._reconfigured = asyncio.Event()

    async def _rest(self, seconds: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + seconds() - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reconfigured.wait(), left)

    async def _every(self, seconds: Callable[[], float], work: Callable[[], None]) -> None:
        while True:
            await self._rest(seconds)
            # A thread cannot be cancelled: `stop` must find it and wait, or it would work on closed logs.
            job = asyncio.ensure_future(asyncio.to_thread(work))
            self._under_way.add(job)
            job.add_done_callback(self._under_way.discard)
            try:
                await asyncio.shield(job)
            except (LogError, OSError) as error:
                logger.error("%s", error)
            except Exception:
                # Ours to mend; until then nobody shall run out of disk because nothing is looked after any more.
                logger.exception("housekeeping failed; it is tried again at its next time")

    def apply_retention(self) -> None:
        """Deletes the segments that retention.ms and retention.bytes no longer allow."""
        for partition in list(self._broker.topics.partitions()):
            if self._take_a_break_or_stop():
                return
            self._apply_retention(partition)

    def _apply_retention(self, partition: Partition) -> None:
        try:
            deleted = partition.log.apply_retention(self._broker.now_ms())
        except (LogError, OSError) as error:
            # The others shall not keep what is too old because of one.
            logger.error("%s", error)
            return
        for segment in deleted:
            say(
                logger,
                "segment deleted",
                partition=partition,
                base_offset=segment.base_offset,
                bytes=segment.size,
                by=segment.reason,
            )

    def compact(self) -> None:
        """Compacts the logs that are dirty enough, one after the other."""
        with _short_turns():
            for partition in list(self._broker.topics.partitions()):
                if partition.config.compacts and not self._is_stopping:
                    self._compact(partition)

    def _compact(self, partition: Partition) -> None:
        began = time.monotonic()
        try:
            done = partition.log.compact(self._broker.now_ms(), self._take_a_break_or_stop)
            if done is None:
                return
            self._broker.data.write_cleaner_offsets({(partition.topic_name, partition.index): partition.log})
        except (LogError, OSError) as error:
            # The others shall not wait for one that cannot be compacted.
            logger.error("%s", error)
            return
        say(logger, "log compacted", partition=partition, seconds=round(time.monotonic() - began, 3), **done._asdict())

    def _take_a_break_or_stop(self) -> bool:
        """Asked by a compaction after each batch, and by retention before each log."""
        worked = time.monotonic() - self._last_break
        if worked > WORK_SECONDS:
            time.sleep(min(worked * BREAK_SHARE, LONGEST_BREAK_SECONDS))
            self._last_break = time.monotonic()
        return self._is_stopping

    def write_checkpoints(self) -> None:
        self._broker.topics.write_checkpoints()


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Of the threads at the interpreter. For one thread at a time: each puts back what it found."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
