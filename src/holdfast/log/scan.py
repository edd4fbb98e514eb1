"""Iterates over the batches of a segment file."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from google_crc32c import value as crc32c

from holdfast.log.errors import CorruptLog
from holdfast.log.segment_file import OpenFile
from holdfast.wire.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, parse_header

# To read only headers. One read covers many small batches; of large ones only the header is needed.
_HEADER_CHUNK = 8 * 1024
_CONTENT_CHUNK = 4 * 1024 * 1024
MAX_RELATIVE_OFFSET = 2**31 - 1
"""Kafka's index entries have 31 bits for an offset within the segment."""
# The bytes that are checked at a time before they are sent: about a millisecond of work, and as large as most fetches.
_CHECKED_BYTES = 1024 * 1024
_CHECKED_BATCHES = 512
_EPOCH_AT = 12
_MAGIC_BEHIND_EPOCH = re.compile(rb"\x00(?=[\x00-\xff]{3}\x02)", re.DOTALL)


class Damage(Exception):
    """There is no valid batch where one should be."""

    def __init__(self, position: int, reason: str = "no batch") -> None:
        super().__init__(f"{reason} at byte {position}")
        self.position = position
        self.reason = reason


class Place(NamedTuple):
    """The position of a batch, and its expected base offset; `None` if an index confirms its position."""

    position: int
    header: BatchHeader
    expected_offset: int | None


class Bounds(NamedTuple):
    """The constraints on all batches of a segment.

    They end before the next segment, their leader is known, and only compaction leaves gaps.
    """

    end_offset: int
    latest_leader_epoch: int
    may_have_gaps: bool = True


UNBOUNDED = Bounds(2**63 - 1, -1)


def header_at(file: OpenFile, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`, if one can be there."""
    data = os.pread(file.fd, HEADER_SIZE, position) if position + HEADER_SIZE <= end else b""
    if len(data) < HEADER_SIZE:
        return None
    header = parse_header(data)
    return header if _fits(header, end - position) else None


def headers(file: OpenFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` to `end`. Raises `Damage` where there is none."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = os.pread(file.fd, min(_HEADER_CHUNK, end - position), position), position, 0
            if len(chunk) < HEADER_SIZE:
                raise Damage(position)
        header = parse_header(chunk, at)
        if not _fits(header, end - position):
            raise Damage(position)
        yield position, header
        position += header.batch_length + LENGTH_OVERHEAD


def in_order(
    found: Iterable[tuple[int, BatchHeader]], next_offset: int, base_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The same batches. Raises `Damage` at a batch whose offsets are inconsistent with its neighbors.

    The offsets begin at `next_offset`, in a segment that begins at `base_offset`.
    """
    held: tuple[int, BatchHeader] | None = None
    is_after_a_gap = False
    found = iter(found)
    while True:
        try:
            following = next(found, None)
        except Damage:
            if held is not None:
                yield held
            raise
        if held is not None:
            if following is not None and following[1].base_offset <= held[1].last_offset and is_after_a_gap:
                raise _out_of_order(held, next_offset)
            yield held
            next_offset = held[1].last_offset + 1
        if following is None:
            return
        header = following[1]
        if header.base_offset < next_offset or header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            raise _out_of_order(following, next_offset)
        held, is_after_a_gap = following, header.base_offset > next_offset


def _out_of_order(found: tuple[int, BatchHeader], next_offset: int) -> Damage:
    return Damage(found[0], f"offset {found[1].base_offset} where {next_offset} should be")


def next_sound(file: OpenFile, position: int, end: int, next_offset: int) -> int:
    """The start of the first valid batch after damaged bytes; `end` if there is none."""
    while position < end:
        chunk = os.pread(file.fd, min(_CONTENT_CHUNK, end - position), position)
        # Every batch has its magic there, after a leader epoch whose first byte is 0 for the first 16 million leaders.
        for match in _MAGIC_BEHIND_EPOCH.finditer(chunk, _EPOCH_AT):
            found = position + match.start() - _EPOCH_AT
            header = header_at(file, found, end)
            if header is not None and header.base_offset >= next_offset and _is_sound(file, found, header):
                return found
        if len(chunk) <= HEADER_SIZE:
            break
        position += len(chunk) - HEADER_SIZE
    return end


def _is_sound(file: OpenFile, position: int, header: BatchHeader) -> bool:
    return has_right_crc(os.pread(file.fd, header.size, position), header)


def has_right_crc(batch: bytes, header: BatchHeader) -> bool:
    return len(batch) == header.size and crc32c(batch[CRC_START:]) == header.crc


def checked_end(file: OpenFile, first: Place, end: int, bounds: Bounds) -> int:
    """The position up to which the batches from `first` on are valid: `end`, or earlier if that is far. Raises
    `Damage`.

    At least one batch is checked, even if it is beyond `end`. Fields that the CRC does not cover are checked against
    the neighbors: a batch begins where the previous one ends, or, after a gap left by compaction, ends before the next
    one begins.
    """
    position, expected = first.position, first.expected_offset
    wanted = max(first.header.size, min(end - position, _CHECKED_BYTES))
    chunk = os.pread(file.fd, wanted, position)
    for _ in range(_CHECKED_BATCHES):
        at = position - first.position
        if at + HEADER_SIZE > len(chunk):
            break
        header = parse_header(chunk, at)
        size = header.batch_length + LENGTH_OVERHEAD
        if at and (header.magic != MAGIC or at + size > len(chunk)):
            break  # the next read begins there and detects the damage
        if not has_right_crc(chunk[at : at + size], header):
            if at:
                break
            raise Damage(position, "wrong CRC")
        if fault := _misplaced(file, position, header, expected, bounds):
            if at:
                break
            raise Damage(position, fault)
        expected = header.last_offset + 1
        position += size
    return position


def _misplaced(file: OpenFile, position: int, header: BatchHeader, expected: int | None, bounds: Bounds) -> str | None:
    """The error in the base offset or leader epoch, if any."""
    epoch = bounds.latest_leader_epoch
    if header.leader_epoch < -1 or (header.leader_epoch > epoch >= 0):
        return f"leader epoch {header.leader_epoch}"
    if header.last_offset >= bounds.end_offset:
        return f"offset {header.last_offset} where the next segment begins at {bounds.end_offset}"
    if expected is None or header.base_offset == expected:
        return None
    if not bounds.may_have_gaps:
        return f"offset {header.base_offset} where {expected} should be"
    behind = os.pread(file.fd, 8, position + header.size)
    next_offset = int.from_bytes(behind, "big", signed=True) if len(behind) == 8 else bounds.end_offset
    if header.base_offset < expected or header.last_offset >= next_offset:
        return f"offset {header.base_offset} between {expected} and {next_offset}"
    return None


def sound_batches(
    file: OpenFile, next_offset: int, end: int, position: int = 0, base_offset: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch of a segment from `position` on, up to the first that is torn.

    A batch is torn unless it is complete, its CRC is correct, and its offsets follow those of the previous one.
    """
    chunk, chunk_start = b"", position
    base_offset = next_offset if base_offset is None else base_offset
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = os.pread(file.fd, min(_CONTENT_CHUNK, end - position), position), position, 0
        header = parse_header(chunk, at)
        if not _fits(header, end - position):
            _refuse_old_format(file, position, end)
            return
        size = header.batch_length + LENGTH_OVERHEAD
        if at + size > len(chunk):
            wanted = max(size, min(_CONTENT_CHUNK, end - position))
            chunk, chunk_start, at = os.pread(file.fd, wanted, position), position, 0
        if crc32c(chunk[at + CRC_START : at + size]) != header.crc:
            return
        if header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            return
        if _misplaced(file, position, header, next_offset, UNBOUNDED) is not None:
            return
        yield position, header
        next_offset = header.last_offset + 1
        position += size


def contents(file: OpenFile, end: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of each batch of a segment, which must consist only of batches. CRCs are not
    checked."""
    chunk, chunk_start, position, next_offset = b"", 0, 0, 0
    held: tuple[int, BatchHeader, bytes] | None = None
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = os.pread(file.fd, min(_CONTENT_CHUNK, end - position), position), position, 0
        if len(chunk) - at < HEADER_SIZE or not _fits(header := parse_header(chunk, at), end - position):
            raise CorruptLog(f"no batch at byte {position}")
        size = header.batch_length + LENGTH_OVERHEAD
        if at + size > len(chunk):
            wanted = max(size, min(_CONTENT_CHUNK, end - position))
            chunk, chunk_start, at = os.pread(file.fd, wanted, position), position, 0
        if header.base_offset < next_offset:
            # Either may be wrong, so neither is returned.
            raise CorruptLog(f"offset {header.base_offset} behind offset {next_offset - 1} at byte {position}")
        if held is not None:
            yield held
        held = position, header, chunk[at : at + size]
        next_offset = header.last_offset + 1
        position += size
    if held is not None:
        yield held


def _fits(header: BatchHeader, room: int) -> bool:
    size = header.batch_length + LENGTH_OVERHEAD
    return header.magic == MAGIC and HEADER_SIZE <= size <= room and header.last_offset_delta >= 0


def _refuse_old_format(file: OpenFile, position: int, end: int) -> None:
    """Complete messages of a format before Kafka 0.11 are data, not a torn tail, and must not be truncated."""
    front = os.pread(file.fd, 17, position)
    length = int.from_bytes(front[8:12], "big", signed=True)
    if front[16] not in (0, 1) or not 14 <= length <= end - position - LENGTH_OVERHEAD:
        return
    message = os.pread(file.fd, length - 4, position + 16)
    if zlib.crc32(message) == int.from_bytes(front[12:16], "big"):
        raise CorruptLog(f"messages of format {front[16]} at byte {position}; only format 2 can be served")
