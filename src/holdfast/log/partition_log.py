"""A partition's log: appending, reading and looking up.

Threads: the event loop's thread calls `append` and `read`, which are fast and do not wait for the disk. Worker threads
may call `flush`, `apply_retention`, `compact` and the lookups by timestamp at the same time. `close` is the last call,
when no other thread uses the log; it aborts a compaction in progress. The common state is in `segmented_log`, flushing
in `flushing`, retention and compaction in `cleaning`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from holdfast.log import timestamps
from holdfast.log.cleaning import LogCleaner
from holdfast.log.compaction import Compacted
from holdfast.log.compaction_process import CompactionSweep
from holdfast.log.config import LogConfig
from holdfast.log.damage_log import DamageLog
from holdfast.log.errors import CorruptSegment, OffsetOutOfRange, StorageError
from holdfast.log.flushing import LogFlusher
from holdfast.log.inspection import inspected, needs_inspection, run_to_completion
from holdfast.log.leader_epochs import EpochEnd
from holdfast.log.placing import Appended, Placed, size_of, with_offsets
from holdfast.log.producer_state import ActiveProducer
from holdfast.log.record_spans import unpack
from holdfast.log.retention import DeletedSegment
from holdfast.log.scan import Bounds
from holdfast.log.segment import FileRegion, Segment
from holdfast.log.segmented_log import SegmentedLog
from holdfast.log.timestamps import TimestampOffset
from holdfast.wire.batch import (
    NO_TIMESTAMP,
    Batch,
    Buffer,
    stamp,
)

_Found = TypeVar("_Found")

_PRODUCERS_AT_A_TIME: Final = 1000


class PartitionLog(SegmentedLog):
    """One partition: records are appended at the end and read from any offset."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        start_offset: int,
        end_offset: int,
        first_dirty_offset: int,
        now_ms: int,
    ) -> None:
        super().__init__(directory, config, start_offset, end_offset, first_dirty_offset, now_ms)
        self._flusher = LogFlusher()
        self._cleaner = LogCleaner()
        self._damage = DamageLog()

    # Appending

    def append(
        self, batches: Sequence[Batch], *, leader_epoch: int, now_ms: int, records_are_known: bool = False
    ) -> Appended:
        """Append all batches, or none. They must be a result of :func:`holdfast.wire.batch.batches`.

        The log's base offset and leader epoch are written into the buffer if it is writable. With `records_are_known`,
        the caller created the records or has inspected them. Otherwise they are inspected here.
        """
        if not batches:
            raise ValueError("nothing to append")
        if self.failed_sync is not None:
            self.check_synced()
        append_time = now_ms if self.config.message_timestamp_type == "LogAppendTime" else None
        size = size_of(batches, self.config)
        if not records_are_known:
            batches = [self._inspected(batch, now_ms) for batch in batches]
        with self.lock:
            headers = [batch.header for batch in batches]
            # Most batches have no producer id, so there is nothing to look up.
            stored = self.producers.check_all(headers) if max([one.producer_id for one in headers]) >= 0 else None
            if stored is not None:
                # As in Kafka, the response to a duplicate has the timestamp of the first copy, whatever the timestamp
                # type.
                return Appended(
                    stored.first_offset, stored.last_offset, stored.timestamp, self.start_offset, duplicate=True
                )
            base_offset, placed = self.end_offset, with_offsets(batches, self.end_offset, append_time)
            segment = self._segment_for(placed, size, now_ms)
            pieces: list[Buffer] = []
            for place in placed:
                pieces += stamp(place.batch.data, place.base_offset, leader_epoch, append_time)
            self._write(segment, pieces)
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, base_offset)
            for batch, first_offset, last_offset, max_timestamp in placed:
                segment.add(first_offset, last_offset, max_timestamp, len(batch.data))
                if batch.header.producer_id >= 0:
                    self.producers.update(batch.header, first_offset, max_timestamp, now_ms)
            self.end_offset = placed[-1].last_offset + 1
        time = NO_TIMESTAMP if append_time is None else append_time
        return Appended(base_offset, self.end_offset - 1, time, self.start_offset)

    def _inspected(self, batch: Batch, now_ms: int) -> Batch:
        if not needs_inspection(self.config, batch.header, now_ms):
            return batch
        records = unpack(batch.data, batch.header)
        return run_to_completion(inspected(self.config, batch, records, self.directory.name, now_ms))

    def _segment_for(self, placed: Sequence[Placed], size: int, now_ms: int) -> Segment:
        """The segment to append to: the last one, or a new one by Kafka's rules for rolling.

        Its indexes are in memory, so that nothing can fail after the write.
        """
        segment = self.segments[-1]
        try:
            if segment.size == 0:
                segment.load_indexes()
                return segment
            latest = max([place.max_timestamp for place in placed])
            must_roll = segment.must_roll(self.config, size, latest, placed[-1].last_offset, now_ms)
        except OSError as error:
            raise StorageError("append to", segment.path, error) from error
        return self.roll(now_ms) if must_roll else segment

    def _write(self, segment: Segment, pieces: Sequence[Buffer]) -> None:
        try:
            if self.has_torn_tail:
                self.cut_torn_tail()
            segment.write(pieces)
        except OSError as error:
            self._cut_back(segment)
            raise StorageError("append to", segment.file.path, error) from error

    def _cut_back(self, segment: Segment) -> None:
        try:
            segment.cut_back()
        except OSError:
            # The next append tries again, before it writes.
            self.has_torn_tail = True

    # Reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileRegion | None:
        """A region that starts with the batch that contains `offset`; None at the end of the log.

        The region keeps its file open. Hold it until its bytes are sent, then release it.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset == self.end_offset or (max_bytes <= 0 and not at_least_one):
            return None
        try:
            return self._read(offset, max_bytes, at_least_one)
        except FileNotFoundError:
            # Retention or compaction removed a segment after the list was read and before the file was opened.
            if offset < self.start_offset:
                raise OffsetOutOfRange(offset, self.start_offset, self.end_offset) from None
            return self._read(offset, max_bytes, at_least_one)

    def _read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileRegion | None:
        segments, epoch, may_have_gaps = self.segments, self.epochs.latest, self.may_have_gaps
        last = segments[-1]
        try:
            for number in range(_holding(segments, offset), len(segments)):
                segment = segments[number]
                end_offset = self.end_offset if segment is last else segments[number + 1].base_offset
                region = segment.read(offset, max_bytes, at_least_one, Bounds(end_offset, epoch, may_have_gaps))
                if region is not None:
                    return region
                self._check_end(segment, end_offset)
        except CorruptSegment as error:
            self._damage.log_once(error)
            raise
        return None

    def _check_end(self, segment: Segment, end_offset: int) -> None:
        """A segment that ends before the next one begins was damaged at its end, or Kafka has compacted it."""
        error = _missing_end(segment, end_offset)
        if not self.may_have_gaps or segment is self.segments[-1]:
            raise error
        self._damage.log_once(error)

    def reaches_end(self, region: FileRegion) -> bool:
        """Whether the region ends at the end of the log."""
        last = self.segments[-1]
        return region.file.owner is last.file.owner and region.position + region.length >= last.size

    def batches_from(self, offset: int, on_damage: Callable[[CorruptSegment], None] | None = None) -> Iterator[bytes]:
        """All stored batches from the one that contains `offset` to the current end, for a replay.

        Raises `CorruptSegment` at damaged bytes. With `on_damage`, that is called instead, and the batches after the
        damage follow.
        """
        segments = self.segments
        segments = segments[_holding(segments, offset) :]
        # Kept open, so that a segment that is compacted meanwhile can be read to its end.
        held = [segment.file.opened() for segment in segments]
        for number, segment in enumerate(segments):
            for position, header in segment.headers(offset, on_damage):
                yield segment.batch_at(position, header)
            end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else segment.next_offset
            if on_damage is not None and segment.next_offset < end_offset:
                on_damage(_missing_end(segment, end_offset))
        del held

    # Looking up

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    def active_producers(self) -> list[ActiveProducer]:
        """The known idempotent producers. For a worker thread, because it may load the log."""
        found: list[ActiveProducer] = []
        ids = self.producers.ids()
        for first in range(0, len(ids), _PRODUCERS_AT_A_TIME):
            with self.lock:  # for a few at a time, because appends wait for it
                found += self.producers.active(ids[first : first + _PRODUCERS_AT_A_TIME])
        return found

    def leader_epoch_end(self, epoch: int) -> EpochEnd:
        """The largest leader epoch up to `epoch`, and its end offset; both -1 when it is not known."""
        return self.epochs.end_of(epoch, self.end_offset)

    @property
    def latest_leader_epoch(self) -> int:
        return self.epochs.latest

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the first record that has it; (-1, -1) if the log has no timestamps."""
        return self._look_up(timestamps.latest)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`. Decodes one batch."""
        return self._look_up(lambda segments: timestamps.first_at(segments, timestamp, self.start_offset))

    def _look_up(self, find: Callable[[Sequence[Segment]], _Found]) -> _Found:
        try:
            return find(self.segments)
        except FileNotFoundError:  # as in `read`
            return find(self.segments)
        except CorruptSegment as error:
            self._damage.log_once(error)
            raise

    # Deleting and cleaning

    def delete_records_before(self, offset: int) -> int:
        """Move the start of the log up to `offset`. Returns the new start.

        The next retention deletes the files. The data directory's checkpoint stores the start, so it must be written
        before the response.
        """
        if not 0 <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        with self.lock:
            self.advance_start(offset)
        return self.start_offset

    def apply_retention(self, now_ms: int) -> list[DeletedSegment]:
        """Delete segments beyond retention.ms or retention.bytes, or before the log start offset. Remove expired
        producers.

        During a compaction nothing is deleted; the next call does it.
        """
        with self.lock:
            self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        return self._cleaner.apply_retention(self, now_ms)

    def compact(
        self, now_ms: int, stop: Callable[[], bool] = lambda: False, sweep: CompactionSweep | None = None
    ) -> Compacted | None:
        """Keep only the last record of each key in the closed segments. None if there is too little to compact.

        For a worker thread. Appends and reads continue meanwhile, and regions that were read before stay readable.
        `stop`, or closing the log, aborts the pass. The next pass begins where this one began. Passes over several logs
        can share a `sweep`.
        """
        if sweep is not None:
            return self._cleaner.compact(self, self._flusher, now_ms, stop, sweep)
        with CompactionSweep() as alone:
            return self._cleaner.compact(self, self._flusher, now_ms, stop, alone)

    # Durability

    @property
    def needs_flush(self) -> bool:
        """A roll has left work for :meth:`flush`, which must be called soon with every flush policy."""
        return bool(self.rolled)

    def flush(self) -> int:
        """Make everything appended so far durable; returns the end offset this covers.

        For a worker thread. Appends continue meanwhile, and several appends can share one flush.
        """
        return self._flusher.flush(self)

    def close(self, clean: bool = True) -> None:
        """Flush everything, including indexes and producers. If `clean` is false, only release the files."""
        with self._cleaner.stopped():
            self._flusher.close(self, clean)


def _holding(segments: Sequence[Segment], offset: int) -> int:
    """The index of the last segment that begins at or before `offset`."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def _missing_end(segment: Segment, end_offset: int) -> CorruptSegment:
    missing = f"it ends at offset {segment.next_offset}, not at {end_offset}"
    return CorruptSegment(segment.file.path, segment.size, missing)
