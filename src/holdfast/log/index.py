"""Offset index and time index of a segment, in Kafka's format.

    .index      entries of 4 + 4 bytes: relative offset of a batch's last record, the batch's position
    .timeindex  entries of 8 + 4 bytes: largest timestamp so far, relative offset of its batch's last record

Entries are kept in memory while a segment grows, and written to their file when it is rolled or closed. The log is
authoritative: after a crash, missing indexes are rebuilt from it. A file is read when it is first needed.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import ClassVar, cast

from holdfast.log import disk
from holdfast.wire.batch import NO_TIMESTAMP


class _IndexFile:
    """The common part of both indexes: entries of two numbers, read on first use, written as a whole."""

    entry: ClassVar[struct.Struct]

    def __init__(self, path: Path, base_offset: int, *, is_new: bool = False, unwritten: bytes | None = None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.is_dirty = is_new or unwritten is not None
        self._is_read = is_new
        # The content of the file until it is written. It is parsed when it is needed.
        self._unwritten = unwritten

    def is_whole_file(self) -> bool:
        """The file exists, and its last entry is complete."""
        try:
            return self.path.stat().st_size % self.entry.size == 0
        except FileNotFoundError:
            return False

    def _holds(self, content: bytes) -> bool:
        try:
            return self.path.stat().st_size == len(content) and self.path.read_bytes() == content
        except FileNotFoundError:
            return False

    def _entries_in_file(self) -> bytes:
        unwritten = self._unwritten
        if unwritten is not None:
            return unwritten
        data = bytearray(self.path.read_bytes())
        del data[len(data) - len(data) % self.entry.size :]
        _drop_preallocated(data, self.entry.size)
        return bytes(data)

    def _last_in_file(self) -> tuple[int, int] | None:
        """The last entry, without reading the whole file. Also None if Apache Kafka has preallocated the file."""
        size = self.entry.size
        unwritten = self._unwritten
        if unwritten is not None:
            tail = unwritten[-size:]
        else:
            with self.path.open("rb") as file:
                length = file.seek(0, os.SEEK_END)
                file.seek(max(0, length - length % size - size))
                tail = file.read(size)
        return cast(tuple[int, int], self.entry.unpack(tail)) if len(tail) == size and any(tail) else None

    def _write_file(self, content: bytes, sync: bool) -> None:
        if not sync and self._holds(content):
            # The rebuilt index equals the file. After a crash, thousands of unused logs have nothing to write.
            self.is_dirty = False
            return
        fd = disk.create(self.path)
        try:
            os.ftruncate(fd, 0)
            if content:
                disk.write_at(fd, [content], 0)
            if sync:
                disk.fdatasync(fd)
        finally:
            os.close(fd)
        self.is_dirty = False
        self._unwritten = None


def _drop_preallocated(data: bytearray, size: int) -> None:
    """Removes the zeroes with which Apache Kafka preallocates the active segment's index."""
    empty = bytes(size)
    while data.endswith(empty):
        # By bisection first, because there can be a million of them.
        half = len(data) // size // 2 * size
        del data[half if half and not any(data[half:]) else -size :]


class OffsetIndex(_IndexFile):
    entry = struct.Struct(">II")

    def __init__(self, path: Path, base_offset: int, *, is_new: bool = False, unwritten: bytes | None = None) -> None:
        super().__init__(path, base_offset, is_new=is_new, unwritten=unwritten)
        self._offsets = array("I")
        self._positions = array("I")

    def append(self, last_offset: int, position: int) -> None:
        self._read()
        self._positions.append(position)
        self._offsets.append(last_offset - self.base_offset)
        self.is_dirty = True

    def around(self, offset: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The entries between which an offset is: the last below it, the first at or above it."""
        self._read()
        number = bisect_left(self._offsets, offset - self.base_offset)
        return self._entry(number - 1), self._entry(number)

    def last_position_up_to(self, position: int) -> int:
        """The last indexed batch that starts at or before `position`, or the segment's start."""
        self._read()
        number = bisect_right(self._positions, position)
        return self._positions[number - 1] if number else 0

    @property
    def last(self) -> tuple[int, int] | None:
        found = None if self._is_read else self._last_in_file()
        if found is not None:
            return self.base_offset + found[0], found[1]
        self._read()
        return self._entry(len(self._offsets) - 1)

    def write(self, sync: bool = True) -> None:
        """Bring the file up to date."""
        if self.is_dirty:
            self._write_file(self.content(), sync)

    def content(self) -> bytes:
        """The content that the file should have."""
        if self._unwritten is not None and not self._is_read:
            return self._unwritten
        self._read()
        pairs = array("I", bytes(8 * len(self._offsets)))
        pairs[0::2], pairs[1::2] = self._offsets, self._positions
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    def __len__(self) -> int:
        self._read()
        return len(self._offsets)

    def _entry(self, number: int) -> tuple[int, int] | None:
        if not 0 <= number < len(self._offsets):
            return None
        return self.base_offset + self._offsets[number], self._positions[number]

    def _read(self) -> None:
        if self._is_read:
            return
        pairs = array("I", self._entries_in_file())
        if sys.byteorder == "little":
            pairs.byteswap()
        self._offsets, self._positions = pairs[0::2], pairs[1::2]
        self._is_read = True


class TimeIndex(_IndexFile):
    entry = struct.Struct(">qI")

    def __init__(self, path: Path, base_offset: int, *, is_new: bool = False, unwritten: bytes | None = None) -> None:
        super().__init__(path, base_offset, is_new=is_new, unwritten=unwritten)
        self._timestamps = array("q")
        self._offsets = array("I")

    def append(self, timestamp: int, offset: int) -> None:
        """Timestamps only increase: one that is not larger is omitted, as are records without one."""
        last = self.last
        if timestamp > (last[0] if last else NO_TIMESTAMP):
            self._read()
            self._offsets.append(offset - self.base_offset)
            self._timestamps.append(timestamp)
            self.is_dirty = True

    def load(self) -> None:
        """Read the file, if it was not read yet."""
        self._read()

    def last_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry before `timestamp`: all records up to its offset are older."""
        self._read()
        number = bisect_left(self._timestamps, timestamp)
        return (self._timestamps[number - 1], self.base_offset + self._offsets[number - 1]) if number else None

    @property
    def last(self) -> tuple[int, int] | None:
        if not self._is_read:
            found = self._last_in_file()
            if found is not None:
                return found[0], self.base_offset + found[1]
            self._read()
        if not self._timestamps:
            return None
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def write(self, sync: bool = True) -> None:
        """Bring the file up to date."""
        if self.is_dirty:
            self._write_file(self.content(), sync)

    def content(self) -> bytes:
        """The content that the file should have."""
        if self._unwritten is not None and not self._is_read:
            return self._unwritten
        self._read()
        return b"".join(self.entry.pack(*pair) for pair in zip(self._timestamps, self._offsets, strict=True))

    def _read(self) -> None:
        if self._is_read:
            return
        entries = list(self.entry.iter_unpack(self._entries_in_file()))
        self._timestamps = array("q", [entry[0] for entry in entries])
        self._offsets = array("I", [entry[1] for entry in entries])
        self._is_read = True


_TIME_ENTRY_BYTES = TimeIndex.entry.size


class SegmentIndexes:
    """A segment's two indexes, which are filled together when batches are added."""

    def __init__(self, offset: OffsetIndex, time: TimeIndex) -> None:
        self.offset = offset
        self.time = time
        self._max_timestamp: tuple[int, int] | None = None
        self._entries: int | None = None
        """Of the offset index, once it was used."""
        self.unindexed_bytes = 0

    @classmethod
    def of_files(cls, log: Path, base_offset: int) -> SegmentIndexes:
        """The indexes that were written for a segment."""
        return cls(
            OffsetIndex(log.with_suffix(".index"), base_offset),
            TimeIndex(log.with_suffix(".timeindex"), base_offset),
        )

    @classmethod
    def empty(cls, log: Path, base_offset: int) -> SegmentIndexes:
        return cls(
            OffsetIndex(log.with_suffix(".index"), base_offset, is_new=True),
            TimeIndex(log.with_suffix(".timeindex"), base_offset, is_new=True),
        )

    @classmethod
    def of_contents(cls, log: Path, base_offset: int, offset: bytes, time: bytes) -> SegmentIndexes:
        """Complete indexes that another process has built, to be written by :meth:`write`."""
        return cls(
            OffsetIndex(log.with_suffix(".index"), base_offset, unwritten=offset),
            TimeIndex(log.with_suffix(".timeindex"), base_offset, unwritten=time),
        )

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time.last or (NO_TIMESTAMP, self.time.base_offset)
        return self._max_timestamp

    def add(self, position: int, last_offset: int, max_timestamp: int, size: int, interval_bytes: int) -> None:
        """Add the next batch. It gets entries if there are enough bytes since the last one."""
        self.add_timestamp(last_offset, max_timestamp)
        if self.unindexed_bytes > interval_bytes:
            self.offset.append(last_offset, position)
            if self._entries is not None:
                self._entries += 1
            self.time.append(*self.max_timestamp)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size

    def add_timestamp(self, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp[0]:
            self._max_timestamp = (max_timestamp, last_offset)

    def are_full(self, limit_bytes: int) -> bool:
        """One of them may have reached its limit.

        The time index has larger entries, at most as many as the offset index, and a slot reserved for :meth:`finish`.
        Called with every append, so the entries are counted.
        """
        if self._entries is None:
            self._entries = self.load()
        return self._entries >= limit_bytes // _TIME_ENTRY_BYTES - 1

    def load(self) -> int:
        """Read both files, so that adding batches cannot fail. Returns the number of entries of the offset index."""
        self.time.load()
        return len(self.offset)

    def finish(self) -> None:
        """The segment is complete. As in Kafka, the time index ends with the largest timestamp."""
        self.time.append(*self.max_timestamp)

    def write(self, *, sync: bool = True) -> None:
        self.offset.write(sync)
        self.time.write(sync)
