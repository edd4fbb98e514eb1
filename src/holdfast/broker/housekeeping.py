"""What must be done now and then: old segments go, recovery points are written down.

All of it in worker threads; the event loop only says when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.log import LogError

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 60.0
"""Kafka's interval, too (log.flush.offset.checkpoint.interval.ms)."""


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        retention_seconds = self._broker.config.log_retention_check_interval_ms / 1000
        self._tasks = [
            asyncio.create_task(self._every(retention_seconds, self.apply_retention)),
            asyncio.create_task(self._every(CHECKPOINT_SECONDS, self.write_checkpoints)),
        ]

    async def stop(self) -> None:
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

    def write_checkpoints(self) -> None:
        self._broker.topics.write_checkpoints()
