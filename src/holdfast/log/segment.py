"""One segment: a file of batches with its two indexes."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.log import disk, scan
from holdfast.log.index import SegmentIndexes
from holdfast.log.segment_file import OpenFile, SegmentFile
from holdfast.wire.batch import NO_TIMESTAMP, BatchHeader

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

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileRegion | None:
        """From the batch that holds `offset`, or the next one after it, to at most `max_bytes` on."""
        size = self.size
        found = self._recent_batch(offset, size) or self.find(offset)
        if found is None:
            return None
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
        file = self.file.opened()
        return FileRegion(file.fd, start, end - start, file)

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

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, or of the next one after it."""
        _, above = self.indexes.offset.around(offset)
        if above is not None:
            # A large batch has an index entry of its own: one small read hits it.
            hit = scan.header_at(self.file.opened(), above[1], self.size)
            if hit is not None and hit.base_offset <= offset <= hit.last_offset:
                return above[1], hit.size
        first = next(self.headers(offset), None)
        return None if first is None else (first[0], first[1].size)

    def headers(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of all batches from the one that holds `offset` on."""
        below, _ = self.indexes.offset.around(offset)
        if below is not None and not self._is_at(*below):
            # An entry that lies: the log alone is the truth.
            self.rebuild_indexes()
            below, _ = self.indexes.offset.around(offset)
        for position, header in scan.headers(self.file.opened(), below[1] if below else 0, self.size):
            if header.last_offset >= offset:
                yield position, header

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        file = self.file.opened()
        return os.pread(file.fd, header.size, position)

    # Opening

    def load(self, *, is_finished: bool) -> None:
        """Trust the log's bytes, as after a clean close or below the recovery point; find its end.

        The indexes are not trusted beyond what the log confirms: one that ends early is carried on. Two threads may
        come to do it at once, and find the same.
        """
        self._is_finished = is_finished
        indexes = SegmentIndexes.of_files(self.path, self.base_offset)
        next_offset = self._carry_on(indexes) if self._are_fit(indexes) else None
        if next_offset is None:
            self.rebuild_indexes()
            return
        if is_finished:
            indexes.finish()
        self._next_offset = next_offset
        self._indexes = indexes

    def _carry_on(self, indexes: SegmentIndexes) -> int | None:
        """Take in what is not indexed yet; returns where the segment ends, or None if the time index lies."""
        next_offset = self.base_offset
        indexed = indexes.offset.last or (self.base_offset, 0)
        timed = indexes.time.last
        is_confirmed = timed is None
        first = self._first_untimed(indexes, *indexed)
        for position, header in scan.headers(self.file.opened(), first, self.size):
            if timed is not None and header.base_offset <= timed[1] <= header.last_offset:
                is_confirmed = header.max_timestamp == timed[0]
            if position >= indexed[1]:
                self._index(indexes, position, header)
            else:
                indexes.add_timestamp(header.last_offset, header.max_timestamp)
            next_offset = header.last_offset + 1
        # Retention goes by the largest timestamp: one that no batch has could cost records, or keep them for ever.
        return next_offset if is_confirmed else None

    def _are_fit(self, indexes: SegmentIndexes) -> bool:
        """Both files are there, and the last entry stands for a batch."""
        if self.size == 0:
            return False  # nothing to read, and nothing to trust
        if not (indexes.offset.is_whole_file() and indexes.time.is_whole_file()):
            return False
        last = indexes.offset.last
        return last is None or self._is_at(*last)

    def _first_untimed(self, indexes: SegmentIndexes, offset: int, position: int) -> int:
        """Where to go on with timestamps: where the offset index ends, or earlier if the time index does."""
        timed = indexes.time.last
        if timed is None:
            return 0
        if timed[1] >= offset:
            return position
        below, _ = indexes.offset.around(timed[1])
        return below[1] if below else 0

    def recover(self) -> int:
        """Find the end of the sound batches and index them; returns how many bytes are behind it."""
        end, position = self.size, 0
        indexes = SegmentIndexes.empty(self.path, self.base_offset)
        next_offset = self.base_offset
        if end:
            for position, header in scan.sound_batches(self.file.opened(), self.base_offset, end):
                self._index(indexes, position, header)
                next_offset = header.last_offset + 1
                position += header.size
        self._is_finished = False
        self._indexes, self._next_offset = indexes, next_offset
        self.size = position
        return end - position

    def rebuild_indexes(self) -> None:
        """Build both indexes from the headers alone."""
        indexes = SegmentIndexes.empty(self.path, self.base_offset)
        next_offset = self.base_offset
        if self.size:
            for position, header in scan.headers(self.file.opened(), 0, self.size):
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
