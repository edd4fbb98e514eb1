"""Retention and compaction of one log: both replace closed segments and remove files, so they exclude each other.

For worker threads. Appends and reads continue meanwhile.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.log import compaction, disk, retention, swap
from holdfast.log.compaction import Compacted, Compaction
from holdfast.log.compaction_process import (
    CompactionJob,
    CompactionProcess,
    CompactionRunner,
    CompactionSweep,
)
from holdfast.log.errors import CorruptLog, StorageError
from holdfast.log.flushing import LogFlusher
from holdfast.log.recovery import snapshot_offsets, snapshot_path
from holdfast.log.retention import DeletedSegment
from holdfast.log.segment import Segment
from holdfast.log.segmented_log import SegmentedLog
from holdfast.log.swap import Swap

_logger = logging.getLogger(__name__)


class LogCleaner:
    """Cleans one log. If the disk fails during a replacement, the next call finishes it."""

    __slots__ = ("_cleaning", "_is_closing", "_runner", "_unfinished_swap")

    def __init__(self) -> None:
        self._cleaning = threading.Lock()
        self._is_closing = False
        self._runner = CompactionRunner()
        self._unfinished_swap: Swap | None = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Abort a compaction in progress, and start no other."""
        self._is_closing = True
        with self._cleaning:
            yield

    # Retention

    def apply_retention(self, log: SegmentedLog, now_ms: int) -> list[DeletedSegment]:
        """Delete segments beyond retention.ms or retention.bytes, or before the log start offset.

        During a compaction nothing is deleted; the next call does it.
        """
        if not self._cleaning.acquire(blocking=False):
            return []
        try:
            try:
                self._finish_swap(log)
            except StorageError as error:
                # The disk may be full. The segments that can be deleted anyway make room.
                _logger.error("%s", error)
            return self._delete_segments(log, now_ms)
        except OSError as error:
            raise StorageError("delete segments of", log.directory, error) from error
        finally:
            self._cleaning.release()

    def _delete_segments(self, log: SegmentedLog, now_ms: int) -> list[DeletedSegment]:
        with log.lock:
            deleted = retention.segments_to_delete(log.segments, log.start_offset, log.config, now_ms)
            deleted = self._without_unfinished_swap(deleted)
            if not deleted:
                return []
            if len(deleted) == len(log.segments):
                log.roll(now_ms)
            log.drop_first(len(deleted))
        # Oldest first, so that a crash in between leaves a log without gaps.
        for segment, _ in deleted:
            for path in segment.paths:
                disk.unlink(path)
        for offset in snapshot_offsets(log.directory):
            if offset < log.segments[0].base_offset:
                disk.unlink(snapshot_path(log.directory, offset))
        return [DeletedSegment(segment.base_offset, segment.size, reason) for segment, reason in deleted]

    def _without_unfinished_swap(self, deleted: list[tuple[Segment, str]]) -> list[tuple[Segment, str]]:
        """A segment that is still to be renamed would reappear after its deletion."""
        if self._unfinished_swap is None:
            return deleted
        old, new = self._unfinished_swap
        if new.file.path == new.path:
            # Only its indexes are missing, and without the segment they are not needed.
            if any(segment is new for segment, _ in deleted):
                self._unfinished_swap = None
            return deleted
        return list(itertools.takewhile(lambda one: one[0] is not new and one[0] not in old, deleted))

    # Compaction

    def compact(
        self, log: SegmentedLog, flusher: LogFlusher, now_ms: int, stop: Callable[[], bool], sweep: CompactionSweep
    ) -> Compacted | None:
        """Keep only the last record of each key in the closed segments. None if there is too little to compact."""
        with self._cleaning:
            if self._is_closing or not log.config.compacts:
                return None
            log.check_synced()
            self._finish_swap(log)
            try:
                due = _due_for_compaction(log, now_ms)
                if due is None:
                    return None
                # No record may be dropped in favor of a later one that a power failure could remove.
                flusher.flush(log)
                return self._compact(log, due, now_ms, lambda: self._is_closing or stop(), sweep)
            except compaction.Stopped:
                return None
            except CorruptLog as error:
                raise CorruptLog(f"cannot compact {log.directory}: {error}") from error
            except OSError as error:
                raise StorageError("compact", log.directory, error) from error

    def _compact(
        self,
        log: SegmentedLog,
        segments: tuple[Segment, ...],
        now_ms: int,
        stop: Callable[[], bool],
        sweep: CompactionSweep,
    ) -> Compacted:
        with log.lock:
            last_batches = log.producers.last_batches()
        job = CompactionJob(log.directory, segments, log.config, now_ms, last_batches, stop, sweep)
        with self._runner.run(job) as work:
            first_dirty_offset = work.read_keys(segments, max(log.first_dirty_offset, log.start_offset))
            swap.sweep_cleaned(log.directory)
            old = rest = work.covered(segments)
            new: list[Segment] = []
            while rest:
                count = self._compact_first(log, work, rest, new)
                rest = rest[count:]
        log.first_dirty_offset = first_dirty_offset
        return Compacted(
            segments_before=len(old),
            segments_after=len(new),
            bytes_before=sum(segment.size for segment in old),
            bytes_after=sum(segment.size for segment in new),
            records_before=work.records_before,
            records_after=work.records_after,
            tombstones_dropped=work.tombstones_dropped,
            first_dirty_offset=first_dirty_offset,
        )

    def _compact_first(
        self, log: SegmentedLog, work: Compaction | CompactionProcess, segments: Sequence[Segment], done: list[Segment]
    ) -> int:
        """Replace the first segments with one, if anything changes. Returns how many were replaced."""
        first = segments[0]
        interval_bytes = log.config.index_interval_bytes
        new = Segment(log.directory, first.base_offset, first.created_ms, interval_bytes, swap.CLEANED)
        try:
            count, is_changed = work.rewrite(segments, new)
        except BaseException:
            disk.unlink(new.file.path)
            raise
        if not is_changed:
            disk.unlink(new.file.path)
            done.append(first)
            return count
        last = segments[count - 1]
        assert new.next_offset == last.next_offset, "readers and recovery go by where a segment ends"
        new.created_ms = last.created_ms
        new.check_when_read()
        self._unfinished_swap = Swap(segments[:count], new)
        self._finish_swap(log)
        done.append(new)
        return count

    def _finish_swap(self, log: SegmentedLog) -> None:
        """Replace segments on disk and in memory. If the disk fails, the next call tries again."""
        if self._unfinished_swap is None:
            return
        old, new = self._unfinished_swap
        try:
            self._unfinished_swap.commit()
            with log.lock:
                log.replace(old, new)
            self._unfinished_swap.finish()
            for segment in old[1:]:
                disk.unlink(snapshot_path(log.directory, segment.base_offset))
        except OSError as error:
            raise StorageError("finish compacting", log.directory, error) from error
        self._unfinished_swap = None


def _due_for_compaction(log: SegmentedLog, now_ms: int) -> tuple[Segment, ...] | None:
    with log.lock:
        first_dirty_offset = max(log.first_dirty_offset, log.start_offset)
        if compaction.wants_roll(log.segments, first_dirty_offset, log.config, now_ms):
            log.roll(now_ms)
        segments = log.segments
        found = compaction.dirt(segments[:-1], first_dirty_offset, log.config, now_ms)
    if not found.is_due(log.config):
        return None
    for segment, following in itertools.pairwise(segments):
        if segment.next_offset > following.base_offset:
            raise CorruptLog(f"{segment.path} ends at offset {segment.next_offset}, where another segment is")
    return found.segments
