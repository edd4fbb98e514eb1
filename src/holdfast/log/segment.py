"""One segment: a file of batches with its two indexes."""

from __future__ import annotations

import logging
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.log import disk, scan
from holdfast.log.errors import CorruptSegment
from holdfast.log.index import SegmentIndexes
from holdfast.log.segment_file import OpenFile, SegmentFile
from holdfast.wire.batch import NO_TIMESTAMP, BatchHeader

_logger = logging.getLogger(__name__)

# Readers at the tail ask for what was just appended. The places of the latest batches are kept as they come, so
# that such a read needs neither the index nor the file. In arrays: as lists of numbers they would take five times the
# memory, of every partition that is written to.
_RECENT_BATCHES = 2048


class FileRegion:
    """Bytes of a segment to be sent. The file descriptor is valid as long as `file` is referenced."""

    __slots__ = ("fd", "file", "length", "position")

    def __init__(self, fd: int, position: int, length: int, file: OpenFile) -> None:
        self.fd = fd
        self.position = position
        self.length = length
        self.file = file

    def __len__(self) -> int:
        """What a message that carries the region counts for it."""
        return self.length

    def read(self) -> bytes:
        return os.pread(self.fd, self.length, self.position)


def _nothing_recent() -> tuple[array[int], array[int]]:
    """The batches' base offsets and positions."""
    return array("q"), array("q")


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


class Segment:
    """Appended to by one thread; read by any. `size` and `next_offset` grow only after the bytes are there.

    What is in a closed segment that was found on the disk is looked at when somebody first asks.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        created_ms: int,
        index_interval_bytes: int,
        suffix: str = "",
        inode: int | None = None,
    ) -> None:
        """A new segment, whose file is created; one with that inode has been, by another process.

        With a suffix the file has that behind its name until :meth:`rename`: it is not part of the log yet.
        """
        path = log_path(directory, base_offset)
        self.base_offset = base_offset
        self.path = path
        self.file = SegmentFile(path.with_name(path.name + suffix) if suffix else path, inode)
        self.size = os.fstat(self.file.opened().fd).st_size
        self.created_ms = created_ms
        self.was_found = False
        self._index_interval_bytes = index_interval_bytes
        self._indexes: SegmentIndexes | None = SegmentIndexes.empty(path, base_offset)
        self._next_offset = base_offset
        self._is_finished = False
        self._first_timestamp: int | None = None
        # Offsets and positions, replaced together: a segment may be finished in one thread and read in another.
        self._recent = _nothing_recent()
        # From there on the bytes are those that this process has written, or read and found sound.
        self._sound_from = 0
        self._end_of_batches = 0
        # Of those before, what has been checked since.
        self._checked = (0, 0)

    @classmethod
    def found(
        cls, path: Path, base_offset: int, status: os.stat_result, created_ms: int, index_interval_bytes: int
    ) -> Segment:
        """One that is on the disk. Unless it is loaded or recovered next, it takes no more batches."""
        segment = cls.__new__(cls)
        segment.base_offset = base_offset
        segment.path = path
        segment.file = SegmentFile(path, status.st_ino)
        segment.size = status.st_size
        segment.created_ms = created_ms
        segment.was_found = True
        segment._index_interval_bytes = index_interval_bytes
        segment._indexes = None
        segment._next_offset = base_offset
        segment._is_finished = True
        segment._first_timestamp = None
        segment._recent = _nothing_recent()
        segment._sound_from = segment._end_of_batches = status.st_size
        segment._checked = (0, 0)
        return segment

    @property
    def indexes(self) -> SegmentIndexes:
        if self._indexes is None:
            self.load(is_finished=self._is_finished)
        assert self._indexes is not None, "loading a segment makes its indexes"
        return self._indexes

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        if self._indexes is None:
            self.load(is_finished=self._is_finished)
        return self._next_offset

    def write_indexes(self, *, sync: bool = True) -> None:
        """Bring the files of the indexes up to date. Those that nobody has looked at are; an empty segment has none."""
        if self._indexes is not None and (self.size or any(path.exists() for path in self.paths[1:])):
            self._indexes.write(sync=sync)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The log first: without it the others mean nothing and are swept away."""
        return self.path, self.path.with_suffix(".index"), self.path.with_suffix(".timeindex")

    def rename(self, suffix: str) -> None:
        """Give the file this suffix instead of the one it has."""
        target = self.path.with_name(self.path.name + suffix)
        if self.file.path != target:
            # Held, so that nobody has to open it while its name changes.
            held = self.file.opened()
            try:
                disk.rename(self.file.path, target)
            except FileNotFoundError:
                # It may have been done the last time and still been reported as failed.
                if not (target.exists() and os.path.samestat(target.stat(), os.fstat(held.fd))):
                    raise
            self.file.path = target

    @property
    def first_timestamp(self) -> int:
        """The first batch's timestamp, from which segment.ms counts."""
        if self._first_timestamp is None:
            first = scan.header_at(self.file.opened(), 0, self.size)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    # Writing

    def write(self, pieces: Sequence[disk.Buffer]) -> None:
        """Put bytes behind the end. They do not count until :meth:`add` says what they are."""
        file = self.file.opened()
        disk.write_at(file.fd, pieces, self.size)

    def cut_back(self) -> None:
        """Remove what a failed write left behind the end."""
        file = self.file.opened()
        disk.truncate(file.fd, self.size)

    def sync(self) -> None:
        """Bring the bytes to the disk itself."""
        # The file may have been opened anew since it was written to: Linux reports a write that failed in between to
        # the first sync of whoever opened it later.
        file = self.file.opened()
        disk.fdatasync(file.fd)

    def add(self, base_offset: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """Take in the batch that now stands at the end."""
        position = self.size
        self.indexes.add(position, last_offset, max_timestamp, size, self._index_interval_bytes)
        offsets, positions = self._recent
        if len(offsets) >= _RECENT_BATCHES:
            # New arrays instead of shorter ones: another thread may be reading the old.
            offsets, positions = offsets[_RECENT_BATCHES // 2 :], positions[_RECENT_BATCHES // 2 :]
            self._recent = offsets, positions
        positions.append(position)
        offsets.append(base_offset)
        self.size = position + size
        self._next_offset = last_offset + 1

    def finish(self) -> None:
        """The segment takes no more batches."""
        self.indexes.finish()
        self._is_finished = True
        self._recent = _nothing_recent()

    def take_over(self, size: int, next_offset: int, indexes: SegmentIndexes) -> None:
        """The segment is what another process has written into its file, and finished."""
        self._indexes, self._next_offset, self._is_finished = indexes, next_offset, True
        self.size = size

    # Reading

    def read(
        self, offset: int, max_bytes: int, at_least_one: bool, bounds: scan.Bounds = scan.UNBOUNDED
    ) -> FileRegion | None:
        """From the batch that holds `offset`, or the next one after it, to at most `max_bytes` on.

        `CorruptSegment` if that is not what was once written. Kafka leaves it to its clients to compare the CRC, which
        librdkafka does not unless it is asked to (check.crcs).
        """
        size = self.size
        found, place = self._recent_batch(offset, size), None
        if found is None:
            place = self.find(offset)
            if place is None:
                return None
            found = place.position, place.header.size
        start, first_size = found
        end = start + max_bytes
        if end >= size:
            end = size
        elif max_bytes < first_size:
            end = start + (first_size if at_least_one else max_bytes)
        else:
            end = self._whole_batches(start, end)
        if end <= start:
            return None
        if place is not None and end - start >= first_size:
            end = self._checked_end(place, end, bounds)
        file = self.file.opened()
        return FileRegion(file.fd, start, end - start, file)

    def _checked_end(self, first: scan.Place, end: int, bounds: scan.Bounds) -> int:
        """Where to stop, so that all before it is sound."""
        unchecked_end = min(end, self._sound_from)
        start, (checked_start, checked_end) = first.position, self._checked
        if start >= unchecked_end or (checked_start <= start and unchecked_end <= checked_end):
            return end
        try:
            sound_end = scan.checked_end(self.file.opened(), first, unchecked_end, bounds)
        except scan.Damage as damage:
            raise self._corrupt(damage) from None
        # One reader, or several close together, go through it from one end to the other.
        is_next = checked_start <= start <= checked_end
        self._checked = (checked_start if is_next else start, sound_end)
        return end if sound_end >= unchecked_end else sound_end

    def check_when_read(self) -> None:
        """Compaction leaves a damaged batch as it is: nothing of its result is known to be sound."""
        self._sound_from = self.size

    def _corrupt(self, damage: scan.Damage) -> CorruptSegment:
        return CorruptSegment(self.file.path, damage.position, damage.reason)

    def _whole_batches(self, start: int, end: int) -> int:
        """Where to stop at or before `end`: at a batch's start if one is known, else anywhere, as Kafka does."""
        _, positions = self._recent
        if positions and positions[0] <= end:
            boundary = positions[bisect_right(positions, end) - 1]
        else:
            boundary = self.indexes.offset.last_position_up_to(end)
        return boundary if boundary > start else end

    def _recent_batch(self, offset: int, size: int) -> tuple[int, int] | None:
        offsets, positions = self._recent
        if not offsets or offset < offsets[0] or offset >= self._next_offset:
            return None
        number = bisect_right(offsets, offset) - 1
        start = positions[number]
        return start, (positions[number + 1] if number + 1 < len(offsets) else size) - start

    def find(self, offset: int) -> scan.Place | None:
        """The batch that holds `offset`, or the next one after it; None if the segment ends before it."""
        _, above = self.indexes.offset.around(offset)
        if above is not None:
            # A large batch has an index entry of its own: one small read hits it.
            hit = scan.header_at(self.file.opened(), above[1], self.size)
            if hit is None or hit.last_offset != above[0]:
                self._rebuild_wrong_index("an entry names no batch")
            elif hit.base_offset <= offset:
                return scan.Place(above[1], hit, None)
        first = self._start_before(offset)
        before: tuple[int, BatchHeader] | None = None
        for position, header in self._walk(first):
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    self._check_end_of(before)
                expected = before[1].last_offset + 1 if before is not None else first[1]
                return scan.Place(position, header, expected)
            before = position, header
        self._check_end_of(before)
        return None

    def _check_end_of(self, found: tuple[int, BatchHeader] | None) -> None:
        """Whether the batch before a gap really ends there."""
        if found is not None:
            self.sound_batch_at(*found)

    def headers(
        self, offset: int, on_damage: Callable[[CorruptSegment], None] | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of all batches from the one that holds `offset` on.

        `CorruptSegment` where one cannot be read. With `on_damage` that is called instead, and what can be read behind
        the damage comes next.
        """
        first = self._start_before(offset)
        found = self._walk(first) if on_damage is None else self._walk_past_damage(first, on_damage)
        for position, header in found:
            if header.last_offset >= offset:
                yield position, header

    def sound_headers(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """As :meth:`headers`, for a reader that goes by more than offsets: the CRC is checked."""
        for position, header in self.headers(offset):
            if position < self._sound_from:
                self.sound_batch_at(position, header)
            yield position, header

    def offset_before(self, timestamp: int) -> int:
        """All records up to this offset are older than `timestamp`."""
        entry = self.indexes.time.last_before(timestamp)
        if entry is not None and not self._is_true(*entry):
            self._rebuild_wrong_index("an entry of the time index names a timestamp that its batch has not")
            entry = self.indexes.time.last_before(timestamp)
        return self.base_offset if entry is None else entry[1]

    def _is_true(self, timestamp: int, offset: int) -> bool:
        """Whether an entry of the time index names a batch that has that timestamp."""
        _, header = next(self.headers(offset), (0, None))
        return header is not None and header.base_offset <= offset and header.max_timestamp == timestamp

    def _start_before(self, offset: int) -> tuple[int, int]:
        """Position and first offset of a batch at or before the one that holds `offset`, as far as they are known."""
        below, _ = self.indexes.offset.around(offset)
        if below is not None and not self._is_at(*below):
            # An entry that lies: the log alone is the truth.
            self._rebuild_wrong_index("an entry names no batch")
            below, _ = self.indexes.offset.around(offset)
        if below is None:
            return 0, self.base_offset
        hit = scan.header_at(self.file.opened(), below[1], self.size)
        return below[1], hit.base_offset if hit is not None else below[0]

    def _walk(self, first: tuple[int, int]) -> Iterator[tuple[int, BatchHeader]]:
        position, offset = first
        try:
            yield from scan.in_order(scan.headers(self.file.opened(), position, self.size), offset, self.base_offset)
        except scan.Damage as damage:
            raise self._corrupt(damage) from None

    def _walk_past_damage(
        self, first: tuple[int, int], on_damage: Callable[[CorruptSegment], None]
    ) -> Iterator[tuple[int, BatchHeader]]:
        position, offset = first
        while position < self.size:
            try:
                for at, header in scan.in_order(
                    scan.headers(self.file.opened(), position, self.size), offset, self.base_offset
                ):
                    yield at, header
                    position, offset = at + header.size, header.last_offset + 1
            except scan.Damage as damage:
                on_damage(self._corrupt(damage))
                position = scan.next_sound(self.file.opened(), damage.position + 1, self.size, offset)

    def _rebuild_wrong_index(self, reason: str) -> None:
        if self.size:
            fields = {"file": str(self.path), "reason": reason}
            _logger.warning("index built again from the log", extra={"fields": fields})
        self.rebuild_indexes()

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        file = self.file.opened()
        return os.pread(file.fd, header.size, position)

    def sound_batch_at(self, position: int, header: BatchHeader) -> bytes:
        batch = self.batch_at(position, header)
        if not scan.has_right_crc(batch, header):
            raise CorruptSegment(self.file.path, position, "wrong CRC")
        return batch

    # Opening

    def load(self, *, is_finished: bool) -> None:
        """Trust the log's bytes, as after a clean close or below the recovery point; find its end.

        The indexes are not trusted beyond what the log confirms: one that ends early is carried on. Two threads may
        come to do it at once, and find the same.
        """
        self._is_finished = is_finished
        indexes = SegmentIndexes.of_files(self.path, self.base_offset)
        wrong = self._why_unfit(indexes)
        next_offset = self._carry_on(indexes) if wrong is None else None
        if next_offset is None:
            self._rebuild_wrong_index(wrong or "the time index names a timestamp that no batch has")
            return
        if is_finished:
            indexes.finish()
        self._next_offset = next_offset
        self._indexes = indexes

    @property
    def unreadable_tail_bytes(self) -> int:
        """Bytes behind the last batch that was found when the segment was loaded."""
        return self.size - self._end_of_batches

    def _found_batches(self, position: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """All batches from there on, those behind damaged bytes as well; notes where the last one ends."""
        self._end_of_batches = position
        for at, header in self._walk_past_damage((position, offset), self._say_damaged):
            yield at, header
            self._end_of_batches = at + header.size

    def _say_damaged(self, error: CorruptSegment) -> None:
        fields = {"file": str(error.path), "position": error.position, "reason": error.reason}
        _logger.error("damaged segment", extra={"fields": fields})

    def _carry_on(self, indexes: SegmentIndexes) -> int | None:
        """Take in what is not indexed yet; returns where the segment ends, or None if the time index lies."""
        next_offset = self.base_offset
        indexed = indexes.offset.last or (self.base_offset, 0)
        timed = indexes.time.last
        is_confirmed = timed is None
        first = self._first_untimed(indexes, *indexed)
        for position, header in self._found_batches(first, self.base_offset):
            if timed is not None and header.base_offset <= timed[1] <= header.last_offset:
                is_confirmed = header.max_timestamp == timed[0]
            if position >= indexed[1]:
                self._index(indexes, position, header)
            else:
                indexes.add_timestamp(header.last_offset, header.max_timestamp)
            next_offset = header.last_offset + 1
        # Retention goes by the largest timestamp: one that no batch has could cost records, or keep them for ever.
        return next_offset if is_confirmed else None

    def _why_unfit(self, indexes: SegmentIndexes) -> str | None:
        """None if both files are there, and the last entry stands for a batch."""
        if self.size == 0:
            return "nothing to read, and nothing to trust"
        if not (indexes.offset.is_whole_file() and indexes.time.is_whole_file()):
            return "a file is missing or torn"
        last = indexes.offset.last
        return None if last is None or self._is_at(*last) else "the last entry names no batch"

    def _first_untimed(self, indexes: SegmentIndexes, offset: int, position: int) -> int:
        """Where to go on with timestamps: where the offset index ends, or earlier if the time index does."""
        timed = indexes.time.last
        if timed is None:
            return 0
        if timed[1] >= offset:
            return position
        below, _ = indexes.offset.around(timed[1])
        return below[1] if below else 0

    def recover(self, recovery_point: int = 0, *, may_have_gaps: bool = True) -> int:
        """Find the end of the sound batches and index them; returns how many bytes are behind it.

        Below the recovery point all was on the disk once: damage there is not a torn tail, and what is behind it stays.
        Only compaction leaves gaps.
        """
        end, position = self.size, 0
        indexes = SegmentIndexes.empty(self.path, self.base_offset)
        next_offset = self.base_offset
        before: tuple[int, BatchHeader] | None = None
        self._sound_from = 0
        while position < end:
            for at, header in scan.sound_batches(self.file.opened(), next_offset, end, position, self.base_offset):
                if header.base_offset > next_offset and not may_have_gaps:
                    missing = f"no batch has offsets {next_offset} to {header.base_offset - 1}"
                    self._say_damaged(CorruptSegment(self.file.path, at, missing))
                    self._sound_from = end
                if before is not None and before[1].leader_epoch > header.leader_epoch:
                    # The CRC leaves it out; a reader finds out which of the two it is.
                    reason = f"leader epoch {before[1].leader_epoch} before {header.leader_epoch}"
                    self._say_damaged(CorruptSegment(self.file.path, before[0], reason))
                    self._sound_from = end
                before = at, header
                self._index(indexes, at, header)
                next_offset = header.last_offset + 1
                position = at + header.size
            if position == end or next_offset >= recovery_point:
                break
            again = scan.next_sound(self.file.opened(), position + 1, end, next_offset)
            if again == end:
                break
            self._say_damaged(CorruptSegment(self.file.path, position, "no sound batch"))
            self._sound_from, position = end, again
        self._is_finished = False
        self._indexes, self._next_offset = indexes, next_offset
        self.size = self._end_of_batches = position
        return end - position

    def rebuild_indexes(self) -> None:
        """Build both indexes from the headers alone."""
        indexes = SegmentIndexes.empty(self.path, self.base_offset)
        next_offset = self.base_offset
        if self.size:
            for position, header in self._found_batches(0, self.base_offset):
                self._index(indexes, position, header)
                next_offset = header.last_offset + 1
        if self._is_finished:
            indexes.finish()
        self._next_offset = next_offset
        self._indexes = indexes

    def _index(self, indexes: SegmentIndexes, position: int, header: BatchHeader) -> None:
        interval_bytes = self._index_interval_bytes
        indexes.add(position, header.last_offset, header.max_timestamp, header.size, interval_bytes)

    def _is_at(self, last_offset: int, position: int) -> bool:
        hit = scan.header_at(self.file.opened(), position, self.size)
        return hit is not None and hit.last_offset == last_offset
