"""A partition: its segments, end to end.

Threads. One thread, the event loop's, calls `append` and `read`; both are quick and wait for no disk. Another
thread may at the same time call `flush`, `apply_retention`, `compact` and the look-ups by timestamp. `close`
comes last, when nobody else calls; a compaction still under way gives up for it. The lock guards what both sides
change, the list of segments and the producers; it is held for a write into the page cache at most, never for a
sync. Readers take no lock: the list is replaced, not changed, and a segment's size grows only after its bytes are
written. A second lock, held for as long as it takes, keeps compaction and retention apart: both replace closed
segments and remove files.

After a clean close a log is at rest: where it starts and ends is known from the checkpoints, and its directory is
looked at when somebody first reads, writes or cleans it. So a start does not go through thousands of directories that
nobody asks for, and a stop has nothing to write of them.

What a roll leaves to be done (writing the old segment's indexes, the producers' snapshot, the syncs) is done by
the next `flush`, in the worker. Should the process be killed before that, opening the log does it instead.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.log import checkpoint, compaction, disk, retention, swap, timestamps
from holdfast.log.compaction import Compacted, Compaction
from holdfast.log.compaction_process import CompactionProcess, Pass, Workplace
from holdfast.log.config import LogConfig
from holdfast.log.damage_log import DamageLog
from holdfast.log.errors import CorruptLog, CorruptSegment, OffsetOutOfRange, StorageError
from holdfast.log.inspection import asks_for_inspection, at_once, inspected
from holdfast.log.leader_epochs import EpochEnd, LeaderEpochs
from holdfast.log.partition_metadata import write_topic_id
from holdfast.log.placing import Appended, Placed, size_of, with_offsets
from holdfast.log.producer_state import ActiveProducer, ProducerState
from holdfast.log.record_spans import unpack
from holdfast.log.recovery import Recovered, recover, snapshot_offsets, snapshot_path
from holdfast.log.retention import DeletedSegment
from holdfast.log.scan import Bounds
from holdfast.log.segment import FileRegion, Segment
from holdfast.log.swap import Swap
from holdfast.log.timestamps import TimestampOffset
from holdfast.wire.batch import (
    NO_TIMESTAMP,
    Batch,
    Buffer,
)

_logger = logging.getLogger(__name__)

_MAX_RELATIVE_OFFSET = 2**31 - 1
_Found = TypeVar("_Found")

# What a log at rest has not.
_CONTENTS: Final = ("_segments", "_producers", "_epochs")
_PRODUCERS_AT_A_TIME: Final = 1000


class _Rolled(NamedTuple):
    """A segment that is full, with the producers as they were at its end: to be made durable."""

    segment: Segment
    producers: bytes


class PartitionLog:
    _segments: tuple[Segment, ...]
    _producers: ProducerState
    _epochs: LeaderEpochs

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        start_offset: int,
        end_offset: int,
        first_dirty_offset: int,
        now_ms: int,
    ) -> None:
        """Use :meth:`open` or :meth:`at_rest`."""
        self.directory = directory
        self.config = config
        self.start_offset = start_offset
        self.end_offset = end_offset
        # Everything below is on the disk itself, indexes and snapshots included.
        self.recovery_point = end_offset
        # Before it, each key stands at most once. A log that ends earlier is not the one this was said of.
        self.first_dirty_offset = first_dirty_offset if first_dirty_offset <= end_offset else 0
        self._opened_ms = now_ms
        self._new_topic_id: uuid.UUID | None = None
        self._waking = threading.Lock()
        self._rolled: list[_Rolled] = []
        self._has_torn_tail = False
        self._failed_sync: OSError | None = None
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._cleaning = threading.Lock()
        self._unfinished_swap: Swap | None = None
        self._workplace = Workplace()
        self._is_closing = False
        self._damage = DamageLog()

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int = 0,
        first_dirty_offset: int = 0,
    ) -> PartitionLog:
        """Open a partition's directory, or create it. `clean`: the last user closed it properly."""
        try:
            recovered = recover(
                directory,
                config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                may_have_gaps=config.compacts or first_dirty_offset > 0,
            )
        except OSError as error:
            raise StorageError("open", directory, error) from error
        end_offset = recovered.segments[-1].next_offset
        log = cls(directory, config, recovered.start_offset, end_offset, first_dirty_offset, now_ms)
        if not clean:
            log.recovery_point = min(recovery_point, end_offset)
        log._take(recovered)
        return log

    @classmethod
    def at_rest(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        start_offset: int,
        end_offset: int,
        first_dirty_offset: int = 0,
        topic_id: uuid.UUID | None = None,
    ) -> PartitionLog:
        """A log that its last user closed properly, and of which it is known where it starts and ends.

        One that is new has a `topic_id`: its directory is made when it is woken.
        """
        log = cls(directory, config, start_offset, end_offset, first_dirty_offset, now_ms)
        log._new_topic_id = topic_id
        return log

    # Waking

    @property
    def is_at_rest(self) -> bool:
        """Nobody has looked into its directory yet."""
        return "_segments" not in self.__dict__

    def __getattr__(self, name: str) -> Any:  # Any: the annotations of the class say the types
        """Whoever asks for what a log at rest has not wakes it; one that is awake never comes here."""
        if name not in _CONTENTS:
            raise AttributeError(name)
        with self._waking:
            if self.is_at_rest:
                self._wake()
        return self.__dict__[name]

    def wake(self) -> None:
        """Look into the directory now, in a worker thread, so that the first reader or writer need not."""
        _ = self._segments

    def _wake(self) -> None:
        try:
            recovered = recover(
                self.directory,
                self.config,
                now_ms=self._opened_ms,
                clean=True,
                recovery_point=self.end_offset,
                log_start_offset=self.start_offset,
                may_have_gaps=self._may_have_gaps,
            )
            if self._new_topic_id is not None:
                write_topic_id(self.directory, self._new_topic_id)
        except OSError as error:
            raise StorageError("open", self.directory, error) from error
        found = recovered.start_offset, recovered.segments[-1].next_offset
        if found != (self.start_offset, self.end_offset):
            promised = self.start_offset, self.end_offset
            _logger.error("%s: holds offsets %s, not %s as when it was closed", self.directory, found, promised)
            self.start_offset, self.end_offset = found
            self.recovery_point = self.end_offset
        self._take(recovered)

    def _take(self, recovered: Recovered) -> None:
        self._producers = recovered.producers
        self._epochs = recovered.epochs
        # Last, because it makes the log an awake one.
        self._segments = tuple(recovered.segments)

    # Appending

    def append(
        self, batches: Sequence[Batch], *, leader_epoch: int, now_ms: int, records_are_known: bool = False
    ) -> Appended:
        """Store all batches, or none. They must have come out of :func:`holdfast.wire.batch.batches`.

        The bytes are written in place where the buffer allows: base offset and leader epoch are the log's. With
        `records_are_known` the caller made the records itself or has inspected them; else that is done here.
        """
        if not batches:
            raise ValueError("nothing to append")
        self._refuse_after_failed_sync()
        append_time = now_ms if self.config.message_timestamp_type == "LogAppendTime" else None
        size = size_of(batches, self.config)
        if not records_are_known:
            batches = [self._inspected(batch, now_ms) for batch in batches]
        with self._lock:
            stored = self._producers.check_all([batch.header for batch in batches])
            if stored is not None:
                # As Kafka: a duplicate is answered with its first copy's timestamp, whatever the timestamp type.
                return Appended(
                    stored.first_offset, stored.last_offset, stored.timestamp, self.start_offset, duplicate=True
                )
            base_offset, placed = self.end_offset, with_offsets(batches, self.end_offset, append_time)
            segment = self._segment_for(placed, size, now_ms)
            self._write(segment, [piece for place in placed for piece in place.stamped(leader_epoch, append_time)])
            self._epochs.assign(leader_epoch, base_offset)
            for place in placed:
                segment.add(place.base_offset, place.last_offset, place.max_timestamp, len(place.batch.data))
                if place.batch.header.producer_id >= 0:
                    self._producers.update(place.batch.header, place.base_offset, place.max_timestamp, now_ms)
            self.end_offset = segment.next_offset
        time = NO_TIMESTAMP if append_time is None else append_time
        return Appended(base_offset, self.end_offset - 1, time, self.start_offset)

    def _inspected(self, batch: Batch, now_ms: int) -> Batch:
        if not asks_for_inspection(self.config, batch.header, now_ms):
            return batch
        return at_once(inspected(self.config, batch, unpack(batch.data, batch.header), self.directory.name, now_ms))

    def _segment_for(self, placed: Sequence[Placed], size: int, now_ms: int) -> Segment:
        """The segment to append to: the last one, or a new one by Kafka's rules for rolling."""
        segment = self._segments[-1]
        if segment.size == 0:
            return segment
        latest = max([place.max_timestamp for place in placed])
        first = segment.first_timestamp
        waited_ms = latest - first if first >= 0 else now_ms - segment.created_ms
        if (
            segment.size + size > self.config.segment_bytes
            or waited_ms > self.config.segment_ms
            or placed[-1].last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or segment.indexes.are_full(self.config.segment_index_bytes)
        ):
            return self._roll(now_ms)
        return segment

    def _roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end. The lock is held."""
        full = self._segments[-1]
        try:
            if self._has_torn_tail:
                full.cut_back()
                self._has_torn_tail = False
            segment = Segment(self.directory, self.end_offset, now_ms, self.config.index_interval_bytes)
        except OSError as error:
            raise StorageError("start a segment in", self.directory, error) from error
        full.finish()
        self._rolled.append(_Rolled(full, self._producers.to_snapshot()))
        self._segments = (*self._segments, segment)
        return segment

    def _write(self, segment: Segment, pieces: Sequence[Buffer]) -> None:
        try:
            if self._has_torn_tail:
                segment.cut_back()
                self._has_torn_tail = False
            segment.write(pieces)
        except OSError as error:
            self._cut_back(segment)
            raise StorageError("append to", segment.file.path, error) from error

    def _cut_back(self, segment: Segment) -> None:
        try:
            segment.cut_back()
        except OSError:
            # The next append tries again, before it writes.
            self._has_torn_tail = True

    # Reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileRegion | None:
        """A region that starts with the batch holding `offset`; None at the end of the log.

        The region holds its file open: keep it until its bytes are sent, then let it go.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset == self.end_offset or (max_bytes <= 0 and not at_least_one):
            return None
        try:
            return self._read(offset, max_bytes, at_least_one)
        except FileNotFoundError:
            # Retention or compaction took a segment away between our look at the list and at the file.
            if offset < self.start_offset:
                raise OffsetOutOfRange(offset, self.start_offset, self.end_offset) from None
            return self._read(offset, max_bytes, at_least_one)

    def _read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileRegion | None:
        segments, epoch, may_have_gaps = self._segments, self._epochs.latest, self._may_have_gaps
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
            self._damage.say_once(error)
            raise
        return None

    def _check_end(self, segment: Segment, end_offset: int) -> None:
        """A segment that ends before the next one begins has lost its end, or Kafka has compacted it."""
        missing = f"it ends at offset {segment.next_offset}, not at {end_offset}"
        error = CorruptSegment(segment.file.path, segment.size, missing)
        if not self._may_have_gaps or segment is self._segments[-1]:
            raise error
        self._damage.say_once(error)

    @property
    def _may_have_gaps(self) -> bool:
        return self.config.compacts or self.first_dirty_offset > 0

    def reaches_end(self, region: FileRegion) -> bool:
        """Whether the region ends where the log does, so that there was no more to give."""
        last = self._segments[-1]
        return region.file.owner is last.file.owner and region.position + region.length >= last.size

    def batches_from(self, offset: int, on_damage: Callable[[CorruptSegment], None] | None = None) -> Iterator[bytes]:
        """All stored batches from the one that holds `offset` to the present end, for a replay.

        `CorruptSegment` at damaged bytes; with `on_damage` that is called, and the batches behind them come next.
        """
        segments = self._segments
        segments = segments[_holding(segments, offset) :]
        # Held, so that what is compacted away meanwhile can be read to its end.
        held = [segment.file.opened() for segment in segments]
        for number, segment in enumerate(segments):
            for position, header in segment.headers(offset, on_damage):
                yield segment.batch_at(position, header)
            end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else segment.next_offset
            if on_damage is not None and segment.next_offset < end_offset:
                missing = f"it ends at offset {segment.next_offset}, not at {end_offset}"
                on_damage(CorruptSegment(segment.file.path, segment.size, missing))
        del held

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def active_producers(self) -> list[ActiveProducer]:
        """The idempotent producers that are known. For a worker thread; a log at rest wakes up for it."""
        found: list[ActiveProducer] = []
        ids = self._producers.ids()
        for first in range(0, len(ids), _PRODUCERS_AT_A_TIME):
            with self._lock:  # for some at a time: appends wait for it
                found += self._producers.active(ids[first : first + _PRODUCERS_AT_A_TIME])
        return found

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def leader_epoch_end(self, epoch: int) -> EpochEnd:
        """The largest leader epoch up to `epoch`, and its end offset; both -1 when it is not known."""
        return self._epochs.end_of(epoch, self.end_offset)

    @property
    def latest_leader_epoch(self) -> int:
        return self._epochs.latest

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the first record that has it; (-1, -1) in a log without any."""
        return self._look_up(timestamps.latest)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is at least as late as `timestamp`. Decodes one batch."""
        return self._look_up(lambda segments: timestamps.first_at(segments, timestamp, self.start_offset))

    def _look_up(self, find: Callable[[Sequence[Segment]], _Found]) -> _Found:
        try:
            return find(self._segments)
        except FileNotFoundError:  # as in `read`
            return find(self._segments)
        except CorruptSegment as error:
            self._damage.say_once(error)
            raise

    # Deleting

    def delete_records_before(self, offset: int) -> int:
        """Move the start of the log up to `offset`; returns the new start.

        The files go with the next retention. That the start stays there after a kill is the matter of the
        data directory's checkpoint: write it before the request is answered.
        """
        if not 0 <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        with self._lock:
            self.start_offset = max(self.start_offset, offset)
            self._epochs.cut(self.start_offset, self.end_offset)
        return self.start_offset

    def apply_retention(self, now_ms: int) -> list[DeletedSegment]:
        """Delete segments that are too old, too many, or before the start; forget silent producers.

        While a compaction is under way nothing is deleted; the next call does it.
        """
        with self._lock:
            self._producers.expire(now_ms, self.config.producer_id_expiration_ms)
        if not self._cleaning.acquire(blocking=False):
            return []
        try:
            try:
                self._finish_swap()
            except StorageError as error:
                # A full disk may be why, and what can go without it makes room.
                _logger.error("%s", error)
            return self._delete_doomed(now_ms)
        except OSError as error:
            raise StorageError("delete segments of", self.directory, error) from error
        finally:
            self._cleaning.release()

    def _delete_doomed(self, now_ms: int) -> list[DeletedSegment]:
        with self._lock:
            doomed = retention.doomed(self._segments, self.start_offset, self.config, now_ms)
            doomed = self._without_unfinished_swap(doomed)
            if not doomed:
                return []
            if len(doomed) == len(self._segments):
                self._roll(now_ms)
            self._segments = self._segments[len(doomed) :]
            self.start_offset = max(self.start_offset, self._segments[0].base_offset)
            self._epochs.cut(self.start_offset, self.end_offset)
            gone = {segment.base_offset for segment, _ in doomed}
            self._rolled = [rolled for rolled in self._rolled if rolled.segment.base_offset not in gone]
        # Oldest first, so that a kill in between leaves a log without holes.
        for segment, _ in doomed:
            for path in segment.paths:
                disk.unlink(path)
        self._drop_snapshots(before=self._segments[0].base_offset)
        return [DeletedSegment(segment.base_offset, segment.size, reason) for segment, reason in doomed]

    def _without_unfinished_swap(self, doomed: list[tuple[Segment, str]]) -> list[tuple[Segment, str]]:
        """A segment that has not got its place yet would take it later, and what is deleted would be back."""
        if self._unfinished_swap is None:
            return doomed
        old, new = self._unfinished_swap
        if new.file.path == new.path:
            # Only its indexes are missing; without the segment nobody needs them.
            if any(segment is new for segment, _ in doomed):
                self._unfinished_swap = None
            return doomed
        return list(itertools.takewhile(lambda one: one[0] is not new and one[0] not in old, doomed))

    def _drop_snapshots(self, before: int) -> None:
        for offset in snapshot_offsets(self.directory):
            if offset < before:
                disk.unlink(snapshot_path(self.directory, offset))

    # Compacting

    def compact(self, now_ms: int, stop: Callable[[], bool] = lambda: False) -> Compacted | None:
        """Keep only the last record of each key among the closed segments; None if there is not enough to do.

        For a worker thread. Appends and reads go on meanwhile; a region that was read before stays readable. When
        `stop` says so the pass is given up, as when the log is closed: the next one begins where this one began.
        """
        with self._cleaning:
            if self._is_closing or not self.config.compacts:
                return None
            self._refuse_after_failed_sync()
            self._finish_swap()
            try:
                due = self._due_for_compaction(now_ms)
                if due is None:
                    return None
                # Nothing may be dropped for the sake of a record that a power cut takes away.
                self.flush()
                return self._compact(due, now_ms, lambda: self._is_closing or stop())
            except compaction.Stopped:
                return None
            except CorruptLog as error:
                raise CorruptLog(f"cannot compact {self.directory}: {error}") from error
            except OSError as error:
                raise StorageError("compact", self.directory, error) from error

    def _due_for_compaction(self, now_ms: int) -> tuple[Segment, ...] | None:
        with self._lock:
            first_dirty_offset = max(self.first_dirty_offset, self.start_offset)
            if compaction.wants_roll(self._segments, first_dirty_offset, self.config, now_ms):
                self._roll(now_ms)
            segments = self._segments
            found = compaction.dirt(segments[:-1], first_dirty_offset, self.config, now_ms)
        if not found.is_due(self.config):
            return None
        for segment, following in itertools.pairwise(segments):
            if segment.next_offset > following.base_offset:
                raise CorruptLog(f"{segment.path} ends at offset {segment.next_offset}, where another segment is")
        return found.segments

    def _compact(self, segments: tuple[Segment, ...], now_ms: int, stop: Callable[[], bool]) -> Compacted:
        with self._lock:
            last_batches = self._producers.last_batches()
        what = Pass(self.directory, segments, self.config, now_ms, last_batches, stop)
        with self._workplace.work(what) as work:
            first_dirty_offset = work.read_keys(segments, max(self.first_dirty_offset, self.start_offset))
            swap.sweep_cleaned(self.directory)
            old = rest = work.covered(segments)
            new: list[Segment] = []
            while rest:
                count = self._compact_first(work, rest, new)
                rest = rest[count:]
        self.first_dirty_offset = first_dirty_offset
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
        self, work: Compaction | CompactionProcess, segments: Sequence[Segment], done: list[Segment]
    ) -> int:
        """Replace the first segments by one, if anything changes; returns how many they were."""
        first = segments[0]
        interval_bytes = self.config.index_interval_bytes
        new = Segment(self.directory, first.base_offset, first.created_ms, interval_bytes, swap.CLEANED)
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
        self._finish_swap()
        done.append(new)
        return count

    def _finish_swap(self) -> None:
        """Replace segments on the disk and in memory; what the disk refuses is tried again the next time."""
        if self._unfinished_swap is None:
            return
        old, new = self._unfinished_swap
        try:
            self._unfinished_swap.decide()
            with self._lock:
                if old[0] in self._segments:
                    at = self._segments.index(old[0])
                    self._segments = (*self._segments[:at], new, *self._segments[at + len(old) :])
            self._unfinished_swap.finish()
            for segment in old[1:]:
                disk.unlink(snapshot_path(self.directory, segment.base_offset))
        except OSError as error:
            raise StorageError("finish compacting", self.directory, error) from error
        self._unfinished_swap = None

    # Durability

    @property
    def needs_flush(self) -> bool:
        """A roll has left work for :meth:`flush`; do it soon, whatever the flush policy is."""
        return bool(self._rolled)

    def flush(self) -> int:
        """Bring everything appended so far to the disk itself; returns the end offset this covers.

        For a worker thread. Appends go on meanwhile; several waiting for one flush can share it.
        """
        if self.is_at_rest:
            return self.end_offset
        with self._flushing:
            self._refuse_after_failed_sync()
            with self._lock:
                rolled, active, end_offset = list(self._rolled), self._segments[-1], self.end_offset
                epochs = self._epochs.entries if self._epochs.is_dirty else None
                self._epochs.is_dirty = False
            if end_offset == self.recovery_point and not rolled and epochs is None:
                return end_offset
            try:
                self._make_durable(rolled, active, epochs)
            except OSError as error:
                self._epochs.is_dirty = self._epochs.is_dirty or epochs is not None
                raise StorageError("flush", self.directory, error) from error
            with self._lock:
                self._rolled = [entry for entry in self._rolled if entry not in rolled]
            self.recovery_point = end_offset
            return end_offset

    def _make_durable(
        self, rolled: Sequence[_Rolled], active: Segment, epochs: Sequence[tuple[int, int]] | None
    ) -> None:
        for segment, producers in rolled:
            self._sync(segment)
            segment.write_indexes()
            disk.replace_file(snapshot_path(self.directory, segment.next_offset), producers)
        self._sync(active)
        if epochs is not None:
            checkpoint.write_epochs(self.directory / checkpoint.LEADER_EPOCHS, epochs)
        if rolled or self.recovery_point <= active.base_offset:
            # The names of the new files, and with the first of them that of the directory.
            disk.sync_directory(self.directory)
            if not self.recovery_point:
                disk.sync_directory(self.directory.parent)

    def _sync(self, segment: Segment) -> None:
        try:
            segment.sync()
        except FileNotFoundError:
            if segment in self._segments:
                raise
            # Retention has removed it meanwhile.
        except OSError as error:
            self._failed_sync = error
            raise

    def _refuse_after_failed_sync(self) -> None:
        # After a failed sync Linux drops what it could not write, and the next sync succeeds as if all were well.
        # Only opening the log again tells what is there.
        if self._failed_sync is not None:
            raise StorageError("use, since a sync failed,", self.directory, self._failed_sync)

    def close(self, clean: bool = True) -> None:
        """Flush all, indexes and producers included; with `clean` false only let the files go."""
        self._is_closing = True
        with self._cleaning:
            self._close(clean)

    def _close(self, clean: bool) -> None:
        with self._waking:
            if self.is_at_rest:
                # Nobody shall wake it any more.
                self._producers, self._epochs, self._segments = ProducerState(), LeaderEpochs(), ()
                return
        if clean:
            try:
                if self._has_torn_tail:
                    # Whoever opens the log next trusts it to its last byte, and would append behind the rest.
                    self._segments[-1].cut_back()
                    self._has_torn_tail = False
                self.flush()
                self._segments[-1].finish()
                # Not synced, nor is the snapshot: both are checked against the log when they are read.
                for segment in self._segments:
                    segment.write_indexes(sync=False)
                self._write_snapshot()
            except OSError as error:
                raise StorageError("close", self.directory, error) from error
        with self._flushing:
            # Whoever deletes the log next gives its directory up: a flush still under way would write into another's.
            self._segments = ()

    def _write_snapshot(self) -> None:
        path, content = snapshot_path(self.directory, self.end_offset), self._producers.to_snapshot()
        is_empty = self.end_offset == self._segments[0].base_offset and not self._producers
        if not is_empty and not (path.exists() and path.read_bytes() == content):
            disk.replace_file(path, content, sync=False)


def _holding(segments: Sequence[Segment], offset: int) -> int:
    """The number of the last segment that begins at or before `offset`."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
