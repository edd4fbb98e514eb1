"""One segment: a file of batches with its two indexes."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.log import disk, index_building, scan
from holdfast.log.config import LogConfig
from holdfast.log.errors import CorruptSegment
from holdfast.log.index import SegmentIndexes
from holdfast.log.segment_file import OpenFile, SegmentFile
from holdfast.log.segment_walk import SegmentBytes, walk, walk_past_damage
from holdfast.wire.batch import NO_TIMESTAMP, BatchHeader

# Readers at the tail fetch the latest batches. Their positions are kept in memory, so that such a read needs neither
# the index nor the file. They are in arrays, because lists would take five times the memory for every partition that is
# written to.
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
        """The size of the region in a message."""
        return self.length

    def read(self) -> bytes:
        return os.pread(self.fd, self.length, self.position)


def _nothing_recent() -> tuple[array[int], array[int]]:
    """The batches' base offsets and positions."""
    return array("q"), array("q")


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


class Segment:
    """One thread appends, any thread may read. `size` and `next_offset` grow only after the bytes are written.

    A closed segment on disk is loaded when it is first used.
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
        """A new segment, whose file is created. With an inode, another process has created the file.

        With a suffix, the file has it in its name until :meth:`rename`, and is not part of the log yet.
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
        # Offsets and positions, replaced together, because one thread may finish a segment while another reads it.
        self._recent = _nothing_recent()
        # From there on, this process has written the bytes, or read and checked them.
        self._sound_from = 0
        self._end_of_batches = 0
        # The range of earlier bytes that has been checked since.
        self._checked = (0, 0)

    @classmethod
    def found(
        cls, path: Path, base_offset: int, status: os.stat_result, created_ms: int, index_interval_bytes: int
    ) -> Segment:
        """An existing segment. Unless it is loaded or recovered next, no batches can be appended."""
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
        """Write the index files if necessary. Indexes that were not loaded are up to date; an empty segment has
        none."""
        if self._indexes is not None and (self.size or any(path.exists() for path in self.paths[1:])):
            self._indexes.write(sync=sync)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The log first, because without it the other files are leftovers and are removed."""
        return self.path, self.path.with_suffix(".index"), self.path.with_suffix(".timeindex")

    def rename(self, suffix: str) -> None:
        """Replace the suffix of the file."""
        target = self.path.with_name(self.path.name + suffix)
        if self.file.path != target:
            # Kept open, so that no thread has to open it while its name changes.
            held = self.file.opened()
            try:
                disk.rename(self.file.path, target)
            except FileNotFoundError:
                # The previous attempt may have succeeded although it was reported as failed.
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

    def must_roll(self, config: LogConfig, size: int, latest: int, last_offset: int, now_ms: int) -> bool:
        """Whether, by Kafka's rules, batches of this size, latest timestamp and last offset require a new segment."""
        first = self.first_timestamp
        waited_ms = latest - first if first >= 0 else now_ms - self.created_ms
        return (
            self.size + size > config.segment_bytes
            or waited_ms > config.segment_ms
            or last_offset - self.base_offset > scan.MAX_RELATIVE_OFFSET
            or self.indexes.are_full(config.segment_index_bytes)
        )

    def load_indexes(self) -> None:
        """Read the index files, so that neither :meth:`add` nor :meth:`finish` can fail."""
        self.indexes.load()

    def write(self, pieces: Sequence[disk.Buffer]) -> None:
        """Write bytes at the end. They become part of the segment with :meth:`add`."""
        file = self.file.opened()
        disk.write_at(file.fd, pieces, self.size)

    def cut_back(self) -> None:
        """Remove bytes that a failed write left after the end."""
        file = self.file.opened()
        disk.truncate(file.fd, self.size)

    def sync(self) -> None:
        """Flush the bytes to disk."""
        # The file may have been opened again since it was written to: Linux reports a write that failed in between to
        # the first sync of every later descriptor.
        file = self.file.opened()
        disk.fdatasync(file.fd)

    def add(self, base_offset: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """Add the batch that was written at the end."""
        position = self.size
        self.indexes.add(position, last_offset, max_timestamp, size, self._index_interval_bytes)
        offsets, positions = self._recent
        if len(offsets) >= _RECENT_BATCHES:
            # New arrays, because another thread may be reading the old ones.
            offsets, positions = offsets[_RECENT_BATCHES // 2 :], positions[_RECENT_BATCHES // 2 :]
            self._recent = offsets, positions
        positions.append(position)
        offsets.append(base_offset)
        self.size = position + size
        self._next_offset = last_offset + 1

    def finish(self) -> None:
        """No more batches can be appended."""
        self.indexes.finish()
        self._is_finished = True
        self._recent = _nothing_recent()

    def take_over(self, size: int, next_offset: int, indexes: SegmentIndexes) -> None:
        """Takes the content that another process has written into the file."""
        self._indexes, self._next_offset, self._is_finished = indexes, next_offset, True
        self.size = size

    # Reading

    def read(
        self, offset: int, max_bytes: int, at_least_one: bool, bounds: scan.Bounds = scan.UNBOUNDED
    ) -> FileRegion | None:
        """From the batch that contains `offset`, or the next one after it, at most `max_bytes`.

        Raises `CorruptSegment` if the bytes are damaged. In Kafka only clients check the CRC, and librdkafka does so
        only with check.crcs.
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
        """Where to stop, so that everything before it is valid."""
        unchecked_end = min(end, self._sound_from)
        start, (checked_start, checked_end) = first.position, self._checked
        if start >= unchecked_end or (checked_start <= start and unchecked_end <= checked_end):
            return end
        try:
            sound_end = scan.checked_end(self.file.opened(), first, unchecked_end, bounds)
        except scan.Damage as damage:
            raise CorruptSegment(self.file.path, damage.position, damage.reason) from None
        # Usually one reader, or several close together, read the segment from start to end.
        is_next = checked_start <= start <= checked_end
        self._checked = (checked_start if is_next else start, sound_end)
        return end if sound_end >= unchecked_end else sound_end

    def check_when_read(self) -> None:
        """Compaction keeps a damaged batch unchanged, so its result must be checked as well."""
        self._sound_from = self.size

    def _whole_batches(self, start: int, end: int) -> int:
        """Where to stop at or before `end`: at the start of a batch if one is known, otherwise anywhere, as in
        Kafka."""
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
        """The batch that contains `offset`, or the next one after it; None if the segment ends before it."""
        _, above = self.indexes.offset.around(offset)
        if above is not None:
            # A large batch has its own index entry, so one small read finds it.
            hit = scan.header_at(self.file.opened(), above[1], self.size)
            if hit is None or hit.last_offset != above[0]:
                self._rebuild_wrong_index("an entry names no batch")
            elif hit.base_offset <= offset:
                return scan.Place(above[1], hit, None)
        first = self._start_before(offset)
        before: tuple[int, BatchHeader] | None = None
        for position, header in walk(self._bytes, first):
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    self._check_end_of(before)
                expected = before[1].last_offset + 1 if before is not None else first[1]
                return scan.Place(position, header, expected)
            before = position, header
        self._check_end_of(before)
        return None

    def _check_end_of(self, found: tuple[int, BatchHeader] | None) -> None:
        """Whether the batch before a gap ends there."""
        if found is not None:
            self.sound_batch_at(*found)

    def headers(
        self, offset: int, on_damage: Callable[[CorruptSegment], None] | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of all batches from the one that contains `offset` on.

        Raises `CorruptSegment` at an unreadable batch. With `on_damage`, that is called instead, and the batches after
        the damage follow.
        """
        first = self._start_before(offset)
        found = walk(self._bytes, first) if on_damage is None else walk_past_damage(self._bytes, first, on_damage)
        for position, header in found:
            if header.last_offset >= offset:
                yield position, header

    def sound_headers(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """As :meth:`headers`, but checks the CRC, for readers that use more than offsets."""
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
        """Whether an entry of the time index points at a batch with that timestamp."""
        _, header = next(self.headers(offset), (0, None))
        return header is not None and header.base_offset <= offset and header.max_timestamp == timestamp

    def _start_before(self, offset: int) -> tuple[int, int]:
        """Position and first offset, if known, of a batch at or before the one that contains `offset`."""
        below, _ = self.indexes.offset.around(offset)
        hit = self._indexed_batch(below)
        if below is not None and (hit is None or hit.last_offset != below[0]):
            # The entry is wrong; the log is authoritative.
            self._rebuild_wrong_index("an entry names no batch")
            below, _ = self.indexes.offset.around(offset)
            hit = self._indexed_batch(below)
        if below is None:
            return 0, self.base_offset
        return below[1], hit.base_offset if hit is not None else below[0]

    def _indexed_batch(self, entry: tuple[int, int] | None) -> BatchHeader | None:
        return None if entry is None else scan.header_at(self.file.opened(), entry[1], self.size)

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
        """Find the end of the log. Its bytes are trusted, as after a clean close or below the recovery point.

        Two threads may do this at once, with the same result.
        """
        self._is_finished = is_finished
        self._take(index_building.load(self._bytes, self._index_interval_bytes))

    def recover(self, recovery_point: int = 0, *, may_have_gaps: bool = True) -> int:
        """Find the end of the valid batches and index them. Returns the number of bytes after it."""
        size = self.size
        found = index_building.recover(self._bytes, self._index_interval_bytes, recovery_point, may_have_gaps)
        self._sound_from = 0 if found.is_sound else size
        self._is_finished = False
        self._take(found)
        self.size = found.end
        return size - found.end

    def rebuild_indexes(self) -> None:
        """Build both indexes from the headers alone."""
        self._take(index_building.rebuild(self._bytes, self._index_interval_bytes))

    def _rebuild_wrong_index(self, reason: str) -> None:
        index_building.log_rebuild(self._bytes, reason)
        self.rebuild_indexes()

    def _take(self, found: index_building.Indexed) -> None:
        if self._is_finished:
            found.indexes.finish()
        self._end_of_batches = found.end
        self._next_offset = found.next_offset
        self._indexes = found.indexes

    @property
    def unreadable_tail_bytes(self) -> int:
        """Bytes after the last batch that was found when the segment was loaded."""
        return self.size - self._end_of_batches

    @property
    def _bytes(self) -> SegmentBytes:
        return SegmentBytes(self.path, self.file, self.base_offset, self.size)
