"""Record batches of format v2: the header of 61 bytes, and the operations of a broker on it.

A broker stores a batch as it was sent. It reads the header, checks the CRC, and writes the base offset and the leader
epoch, which the CRC does not cover for that reason. The records after the header, compressed or not, stay unchanged.

    0   base_offset        int64      written by the broker
    8   batch_length       int32      bytes that follow this field
    12  leader_epoch       int32      written by the broker
    16  magic              int8       2
    17  crc                uint32     CRC-32C of everything from byte 21 on
    21  attributes         int16      codec, timestamp type, transactional, control
    23  last_offset_delta  int32
    27  base_timestamp     int64
    35  max_timestamp      int64
    43  producer_id        int64
    51  producer_epoch     int16
    53  base_sequence      int32
    57  record_count       int32
    61  records
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

from google_crc32c import value as crc32c

from holdfast.wire.errors import WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = 2
HEADER_SIZE = 61
# batch_length does not include the base offset and itself.
LENGTH_OVERHEAD = 12
CRC_START = 21
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

# An uncompressed record is at least: length, attributes, timestamp delta, offset delta, key length, value
# length, header count; one byte each.
MIN_RECORD_SIZE = 7

# Compressed, eight million records fit in six kilobytes. Decoding them would take half a minute and a gigabyte.
# Producers that fill a megabyte with the smallest records send a hundred thousand or so.
MAX_RECORDS = 500_000

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
_LAST_CODEC = 4

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")
_STAMP = struct.Struct(">qii")


class BatchFault(Enum):
    """The error in a batch; the broker maps each to Kafka's error code."""

    CORRUPT = "corrupt"
    INVALID_RECORD = "invalid record"
    INVALID_TIMESTAMP = "invalid timestamp"
    UNSUPPORTED_MAGIC = "unsupported magic"
    UNSUPPORTED_CODEC = "unsupported codec"


class BatchError(WireError):
    """A record batch that must not be stored."""

    def __init__(self, fault: BatchFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Batch(NamedTuple):
    """One batch of a request: its header, and its bytes in the receive buffer."""

    header: BatchHeader
    data: memoryview


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`. Checks only the number of bytes."""
    if len(buffer) - position < HEADER_SIZE:
        left = len(buffer) - position
        raise BatchError(BatchFault.CORRUPT, f"a batch header is {HEADER_SIZE} bytes, {left} are left")
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def batches(buffer: Buffer) -> Iterator[Batch]:
    """Split the records field of a produce request into batches that are valid for storage.

    Nothing is allocated before the lengths are checked. The CRC costs one copy of the batch, because the library
    accepts only `bytes`.
    """
    view = memoryview(buffer)
    end = len(view)
    position = 0
    while position < end:
        header = _sound_header(view, position, end)
        data = view[position : position + header.batch_length + LENGTH_OVERHEAD]
        if crc32c(bytes(data[CRC_START:])) != header.crc:
            raise BatchError(BatchFault.CORRUPT, f"CRC of the batch at byte {position} does not match")
        _check_contents(header)
        yield Batch(header, data)
        position += header.batch_length + LENGTH_OVERHEAD


def _sound_header(view: memoryview, position: int, end: int) -> BatchHeader:
    # Older formats have a shorter header; their magic is at the same position.
    if end - position > 16 and view[position + 16] != MAGIC:
        found = view[position + 16]
        message = f"batch at byte {position} has magic {found}, only {MAGIC} is stored"
        raise BatchError(BatchFault.UNSUPPORTED_MAGIC, message)
    header = parse_header(view, position)
    length = header.batch_length
    if length < HEADER_SIZE - LENGTH_OVERHEAD or length > end - position - LENGTH_OVERHEAD:
        message = f"batch at byte {position} claims {length} bytes, {end - position - LENGTH_OVERHEAD} are there"
        raise BatchError(BatchFault.CORRUPT, message)
    return header


def _check_contents(header: BatchHeader) -> None:
    """Kafka's checks of a batch from a client (LogValidator) that need only the header."""
    count = header.record_count
    if count < 1 or header.last_offset_delta != count - 1:
        message = f"{count} records with last offset delta {header.last_offset_delta}"
        raise BatchError(BatchFault.INVALID_RECORD, message)
    if count > MAX_RECORDS:
        raise BatchError(BatchFault.INVALID_RECORD, f"{count} records in one batch; {MAX_RECORDS} are taken at most")
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > _LAST_CODEC:
        raise BatchError(BatchFault.UNSUPPORTED_CODEC, f"compression codec {codec} is unknown")
    if codec == 0 and count > (header.batch_length + LENGTH_OVERHEAD - HEADER_SIZE) // MIN_RECORD_SIZE:
        raise BatchError(BatchFault.INVALID_RECORD, f"{count} records cannot be in {header.size} bytes")
    if attributes & (CONTROL | DELETE_HORIZON):
        raise BatchError(BatchFault.INVALID_RECORD, "clients may not write control records or delete horizons")
    if attributes & LOG_APPEND_TIME:
        raise BatchError(BatchFault.INVALID_TIMESTAMP, "a producer may not set the type LogAppendTime")
    if header.base_timestamp < NO_TIMESTAMP:
        raise BatchError(BatchFault.INVALID_TIMESTAMP, f"base timestamp {header.base_timestamp} is negative")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        message = f"producer {header.producer_id} with epoch {header.producer_epoch}"
        raise BatchError(BatchFault.INVALID_RECORD, f"{message} and sequence {header.base_sequence}")


def stamp(data: memoryview, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> list[Buffer]:
    """Set the base offset and leader epoch of a batch. Returns the pieces to write, in order.

    The usual case changes twelve bytes that the CRC does not cover and copies nothing. They are changed in place if the
    buffer is writable, otherwise in a new header before the received rest.
    """
    if append_time_ms is not None:
        return [with_timestamps(data, base_offset, leader_epoch, append_time_ms, LOG_APPEND_TIME)]
    if data.readonly:
        (length,) = _INT32.unpack_from(data, 8)
        return [_STAMP.pack(base_offset, length, leader_epoch), data[16:]]
    _INT64.pack_into(data, 0, base_offset)
    _INT32.pack_into(data, 12, leader_epoch)
    return [data]


def with_timestamps(
    data: memoryview, base_offset: int, leader_epoch: int, max_timestamp: int, timestamp_type: int
) -> bytearray:
    """A copy with another maximum timestamp and timestamp type, and a new CRC."""
    copy = bytearray(data)
    _INT64.pack_into(copy, 0, base_offset)
    _INT32.pack_into(copy, 12, leader_epoch)
    _INT64.pack_into(copy, 35, max_timestamp)
    _, attributes = _CRC_AND_ATTRIBUTES.unpack_from(copy, 17)
    attributes = (attributes & ~LOG_APPEND_TIME) | timestamp_type
    _CRC_AND_ATTRIBUTES.pack_into(copy, 17, 0, attributes)
    _CRC_AND_ATTRIBUTES.pack_into(copy, 17, crc32c(bytes(copy[CRC_START:])), attributes)
    return copy
