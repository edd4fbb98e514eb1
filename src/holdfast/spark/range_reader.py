"""The common part of both readers of offset ranges: progress, and the handling of missing records.

A range is complete when the next record would be beyond its end. There need not be a record at `end - 1`: transaction
markers, aborted records and records that compaction removed have offsets too, and are never delivered. The end of the
partition therefore also completes a range, and if no record arrives, the reader requests the partition's offsets.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa

from holdfast.client.errors import ConnectionFailed, HoldfastError
from holdfast.spark.arrow import ArrowBatchBuilder
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.watermarks import DataLoss
from holdfast.types import TopicPartition

logger = logging.getLogger("holdfast.spark")

POLL_TIMEOUT_S: Final = 0.25
PROBE_AFTER_S: Final = 1.0
"""If no record has arrived for this long, the reader requests the partition's offsets."""
PROBE_TIMEOUT_S: Final = 5.0
RETRY_PAUSE_S: Final = 0.1
DELETED_AFTER_S: Final = 3.0
"""How long an existing topic may be unknown to a broker, because metadata does not reach all brokers at once."""


def unreadable(where: TopicPartition, offset: int, reason: str, *, is_forbidden: bool = False) -> HoldfastError:
    advice = ": grant READ on the topic to the user of option kafka.sasl.username" if is_forbidden else ""
    return HoldfastError(f"{where[0]}-{where[1]} cannot be read at {offset}: {reason}{advice}")


class RecordSource(Protocol):
    """The common interface of the sources of records."""

    @property
    def api_timeout_s(self) -> float: ...

    last_error: str
    """Why nothing could be read, if known."""

    def check(self) -> None:
        """Raises an error that is not retriable."""

    def partitions_of(self, topic: str, timeout_s: float) -> Collection[int] | None:
        """The partitions of the topic, empty if it does not exist; None if no broker answers."""

    def bounds(self, where: TopicPartition, timeout_s: float) -> tuple[int, int] | None:
        """The first and last offset of the partition, according to the isolation level; None if no broker answers."""


class RangeReader(ABC):
    """Ranges of different partitions, read together."""

    def __init__(
        self, source: RecordSource, ranges: Sequence[OffsetRange], include_headers: bool, fail_on_data_loss: bool
    ) -> None:
        self._source = source
        self._ranges = {one.where: one for one in ranges}
        self._position = {one.where: one.start for one in ranges}
        """The next offset of each range that is not complete."""
        self._include_headers = include_headers
        self._batches = ArrowBatchBuilder(include_headers=include_headers)
        self._fail_on_data_loss = fail_on_data_loss
        self._progress_at = self._probed_at = time.monotonic()
        self._missing_since: dict[TopicPartition, float] = {}
        self._high_watermark: dict[TopicPartition, int] = {}

    @property
    def remaining(self) -> list[OffsetRange]:
        """The ranges that are not read yet."""
        return [self._ranges[where]._replace(start=at) for where, at in self._position.items()]

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._start()
        while self._position:
            found = False
            for _ in self._read():
                found = True
                while self._batches.full:
                    yield self._batches.take()
                    self._progress_at = time.monotonic()  # Spark's own time does not count
            if not found:
                self._on_idle()
        yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows that have been read and are not yet in a batch."""
        if (last := self._batches.take()) is not None:
            yield last

    # -- implemented by readers ----------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self) -> None:
        """Called before the first read, and when a position was changed."""

    @abstractmethod
    def _read(self) -> Iterator[None]:
        """Adds records to the batch, and yields after each addition."""

    @abstractmethod
    def _on_complete(self, where: TopicPartition) -> None:
        """The range of this partition is complete, and there are others."""

    def _advance(self, where: TopicPartition, offset: int) -> None:
        """There are no more records before this offset."""
        if offset <= self._position[where]:
            return
        self._progress_at = time.monotonic()
        self._source.last_error = ""  # it is resolved
        if offset >= self._ranges[where].end:
            del self._position[where]
            if self._position:
                self._on_complete(where)
        else:
            self._position[where] = offset

    def _on_idle(self) -> None:
        self._source.check()
        now = time.monotonic()
        if now - self._progress_at > self._source.api_timeout_s:
            raise self._timeout_error()
        if now - max(self._progress_at, self._probed_at) > PROBE_AFTER_S:
            for where in list(self._position):
                self._probe(where)
            self._probed_at = time.monotonic()

    def _timeout_error(self) -> HoldfastError:
        where, position = next(iter(self._position.items()))
        trouble = self._source.last_error or "the broker does not say why"
        return ConnectionFailed(
            f"nothing could be read of {where[0]}-{where[1]} from {position} on for {self._source.api_timeout_s:g} s "
            f"({trouble}): see whether the executors reach the brokers at the addresses that these advertise, or raise "
            "the option kafka.default.api.timeout.ms"
        )

    # -- missing records -----------------------------------------------------------------------------------------------

    def _probe(self, where: TopicPartition, *, is_elsewhere: bool = False) -> None:
        """Requests the offsets of the partition, to find out whether the rest of the range can arrive. `is_elsewhere`:
        a fetch failed because of its offset."""
        if where not in self._position:
            return
        topic, partition = where
        patience_s = self._patience_s()
        there = self._source.partitions_of(topic, patience_s)
        if there is None:
            return
        if partition not in there:
            if time.monotonic() - self._missing_since.setdefault(where, time.monotonic()) >= DELETED_AFTER_S:
                self._report_data_loss(where, self._ranges[where].end, "there is no such partition any more")
            return
        self._missing_since.pop(where, None)
        bounds = self._source.bounds(where, patience_s)
        if bounds is None:
            return
        first, end = bounds
        has = f"the partition now has {first} to {end}"
        if self._position[where] < first:
            self._report_data_loss(where, first, has)
        elif end <= self._position[where] < self._high_watermark.get(where, end):
            self._source.last_error = f"a transaction is open that began at {end} or before"
        # Before the first fetch was answered, the last stable offset may be lower than the end of the partition.
        elif end <= self._position[where] and (is_elsewhere or where in self._high_watermark):
            self._report_data_loss(where, self._ranges[where].end, has)

    def _patience_s(self) -> float:
        """How long a request may take."""
        left_s = self._progress_at + self._source.api_timeout_s - time.monotonic()
        return min(PROBE_TIMEOUT_S, max(POLL_TIMEOUT_S, left_s))

    def _report_data_loss(self, where: TopicPartition, up_to: int, has: str) -> None:
        wanted = self._ranges[where]
        lost_to = min(up_to, wanted.end)
        what = (
            f"records {self._position[where]} to {lost_to} of {wanted.topic}-{wanted.partition} are lost ({has}; the "
            f"batch was to read {wanted.start} to {wanted.end}): they were deleted before they were read, or the topic "
            "was created again"
        )
        if self._fail_on_data_loss:
            raise DataLoss(f"{what}; continue with the available records by the option failOnDataLoss=false")
        logger.warning("%s; continuing with the available records (failOnDataLoss=false)", what)
        self._advance(where, lost_to)
        if where in self._position:
            self._start()
