"""When what was appended goes from the page cache to the disk itself.

`flush = os` leaves it to the operating system, as Kafka does: an acknowledgement then survives the end of this
process, not a power cut. `always` acknowledges nothing before it is on the disk; everything that arrives while one
flush is under way shares the next (group commit). `interval` flushes what is dirty every so often.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.broker.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    def __init__(self) -> None:
        self._waiting: dict[Partition, list[asyncio.Future[None]]] = {}
        self._due: dict[Partition, asyncio.TimerHandle] = {}
        self._running: asyncio.Task[None] | None = None
        self.rounds = 0
        """Rounds of flushing, for measuring how many appends share one."""

    async def stop(self) -> None:
        for timer in self._due.values():
            timer.cancel()
        if self._running is not None:
            await self._running

    def written(self, partition: Partition) -> None:
        """Something was appended."""
        if partition.config.flush == "interval" and partition not in self._due:
            loop = asyncio.get_running_loop()
            delay_seconds = partition.config.flush_interval_ms / 1000
            self._due[partition] = loop.call_later(delay_seconds, self._flush_in_background, partition)
        if partition.log.needs_flush and partition not in self._waiting:
            # A segment is full: whatever the policy, its indexes and the producers' snapshot must be written.
            self._flush_in_background(partition)

    def _flush_in_background(self, partition: Partition) -> None:
        timer = self._due.pop(partition, None)
        if timer is not None:
            timer.cancel()
        self.flushed(partition).add_done_callback(_log_failure)

    def flushed(self, partition: Partition) -> asyncio.Future[None]:
        """Done when all that the partition holds now is on the disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append(future)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._waiting:
            round_, self._waiting = self._waiting, {}
            self.rounds += 1
            failures = await asyncio.to_thread(_flush_all, list(round_))
            for partition, futures in round_.items():
                error = failures.get(partition)
                for future in futures:
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(error)
        self._running = None


def _log_failure(flushed: asyncio.Future[None]) -> None:
    if not flushed.cancelled() and (error := flushed.exception()) is not None:
        logger.error("%s", error)


def _flush_all(partitions: list[Partition]) -> dict[Partition, Exception]:
    failures: dict[Partition, Exception] = {}
    for partition in partitions:
        try:
            partition.log.flush()
        except Exception as error:  # noqa: BLE001  # one partition's; the flushes of all others go on
            # A deletion closes the log in another thread: what was written then is gone on purpose.
            if not partition.deleted:
                failures[partition] = error
    return failures
