"""Walking through the batches of a segment file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

from google_crc32c import value as crc32c

from holdfast.log.errors import CorruptLog
from holdfast.log.segment_file import OpenFile
from holdfast.wire.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, parse_header

# For headers alone: one read covers many small batches; of large ones only the header is needed.
_HEADER_CHUNK = 8 * 1024
_CONTENT_CHUNK = 4 * 1024 * 1024
_MAX_RELATIVE_OFFSET = 2**31 - 1


def header_at(file: OpenFile, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`, if one can be there."""
    data = os.pread(file.fd, HEADER_SIZE, position) if position + HEADER_SIZE <= end else b""
    if len(data) < HEADER_SIZE:
        return None
    header = parse_header(data)
    return header if _fits(header, end - position) else None


def headers(file: OpenFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` on; stops where none can be."""
    chunk, chunk_start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = os.pread(file.fd, min(_HEADER_CHUNK, end - position), position), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = parse_header(chunk, at)
        if not _fits(header, end - position):
            return
        yield position, header
        position += header.batch_length + LENGTH_OVERHEAD


def sound_batches(file: OpenFile, base_offset: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from the start of a segment, up to the first that is torn.

    Sound is: whole, with the right CRC, and with offsets that go on from the one before.
    """
    chunk, chunk_start, position = b"", 0, 0
    next_offset = base_offset
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
        if header.base_offset < next_offset or header.last_offset - base_offset > _MAX_RELATIVE_OFFSET:
            return
        yield position, header
        next_offset = header.last_offset + 1
        position += size


def contents(file: OpenFile, end: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of each batch of a segment; all of it must be batches, their CRC is not checked."""
    chunk, chunk_start, position = b"", 0, 0
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
        yield position, header, chunk[at : at + size]
        position += size


def _fits(header: BatchHeader, room: int) -> bool:
    size = header.batch_length + LENGTH_OVERHEAD
    return header.magic == MAGIC and HEADER_SIZE <= size <= room and header.last_offset_delta >= 0


def _refuse_old_format(file: OpenFile, position: int, end: int) -> None:
    """Whole messages of a format before Kafka 0.11 are data, not a torn tail; we must not cut them off."""
    front = os.pread(file.fd, 17, position)
    length = int.from_bytes(front[8:12], "big", signed=True)
    if front[16] not in (0, 1) or not 14 <= length <= end - position - LENGTH_OVERHEAD:
        return
    message = os.pread(file.fd, length - 4, position + 16)
    if zlib.crc32(message) == int.from_bytes(front[12:16], "big"):
        raise CorruptLog(f"messages of format {front[16]} at byte {position}; only format 2 can be served")
