"""Flushing appended records from the page cache to the disk.

`flush = os` leaves it to the operating system, as Kafka does. Acknowledged records then survive a crash of this
process, but not a power failure. With `always`, records are acknowledged after they are on disk; all records that
arrive during a flush share the next one (group commit). `interval` flushes dirty logs periodically.
"""

from __future__ import annotations

import asyncio
import logging
import time

from holdfast.broker.metrics import NO_METRICS, Metrics
from holdfast.broker.storage.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        self._pending: dict[Partition, list[asyncio.Future[None]]] = {}
        self._scheduled: dict[Partition, asyncio.TimerHandle] = {}
        self._running: asyncio.Task[None] | None = None
        self.rounds = 0
        """Rounds of flushing, for measuring how many appends share one."""

    async def stop(self) -> None:
        for timer in self._scheduled.values():
            timer.cancel()
        if self._running is not None:
            await self._running

    def appended(self, partition: Partition) -> None:
        """Records were appended to the partition."""
        if partition.config.flush == "interval" and partition not in self._scheduled:
            loop = asyncio.get_running_loop()
            delay_seconds = partition.config.flush_interval_ms / 1000
            self._scheduled[partition] = loop.call_later(delay_seconds, self._flush_in_background, partition)
        if partition.log.rolled and partition not in self._pending:
            # A segment is full. With every policy, its indexes and the producers' snapshot must be written.
            self._flush_in_background(partition)

    def _flush_in_background(self, partition: Partition) -> None:
        timer = self._scheduled.pop(partition, None)
        if timer is not None:
            timer.cancel()
        self.flush(partition).add_done_callback(_log_failure)

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Done when all current records of the partition are on disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.setdefault(partition, []).append(future)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._pending:
            round_, self._pending = self._pending, {}
            self.rounds += 1
            began = time.monotonic()
            failures = await asyncio.to_thread(_flush_all, list(round_))
            self._metrics.flushed(len(round_), time.monotonic() - began)
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
        except Exception as error:  # noqa: BLE001  # of one partition; the others are flushed
            # A deletion has closed the log in another thread, so its records need no flush.
            if not partition.deleted:
                failures[partition] = error
    return failures
