"""Reads records for the application, and rewinds after an interrupted read.

The exception of a signal (Ctrl-C) may end a read that already has records. librdkafka counts them as delivered, but the
application never gets them. The next use of a position therefore rewinds to the last checkpoint. Some records may be
returned twice; none is skipped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from holdfast.client.clock import Clock
from holdfast.client.fetcher import RecordFetcher
from holdfast.types import TopicPartition

CHECKPOINT_INTERVAL_MS: Final = 50
"""How often the positions are saved for a rewind after an interrupted read."""


class RecordReader:
    def __init__(self, fetcher: RecordFetcher, clock: Clock) -> None:
        self.interrupted = False
        """Whether the last read was interrupted and has not been rewound."""
        self._fetcher = fetcher
        self._clock = clock
        self._next_checkpoint_ms = 0

    def poll(self, timeout_s: float) -> Any:
        try:
            return self._fetcher.poll(timeout_s)
        except BaseException:
            self.interrupted = True
            raise

    def consume(self, max_records: int, timeout_s: float) -> list[Any]:
        """The caller sets `interrupted` if it cannot pass the records to the application."""
        return self._fetcher.consume(max_records, timeout_s)

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.rewind_after_interrupt()
        return self._fetcher.positions(partitions)

    def rewind_after_interrupt(self) -> None:
        if self.interrupted:
            self._fetcher.rewind()
            self.interrupted = False

    def checkpoint_if_due(self) -> None:
        """The application has received all records read so far."""
        now = self._clock.now_ms()
        if now >= self._next_checkpoint_ms:
            self._fetcher.checkpoint()
            took_ms = self._clock.now_ms() - now  # long with thousands of partitions, and then done less often
            self._next_checkpoint_ms = now + max(CHECKPOINT_INTERVAL_MS, 20 * took_ms)
