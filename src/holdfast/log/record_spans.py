"""The records of a stored batch for compaction: the position and the key of each.

A kept record is copied unchanged, and only the fields that compaction needs are decoded. If the batch's base timestamp
changes, the records' timestamps are rewritten, because they are relative to it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from google_crc32c import value as crc32c

from holdfast.wire.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchError,
    BatchFault,
    BatchHeader,
    Buffer,
)
from holdfast.wire.compression import Codec, compress, decompress
from holdfast.wire.records import decode_varint

_MIN_TIMESTAMP = -(2**63)
_MAX_TIMESTAMP = 2**63 - 1

_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _TIMESTAMPS_AT, _COUNT_AT = 8, 17, 21, 27, 57
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_TIMESTAMPS = struct.Struct(">qq")


class RecordSpan(NamedTuple):
    """A record at `start:end` of the decompressed records, including its length."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    start: int
    end: int


# Takes half the time of a call with positional arguments, and there is one for each record.
_span = partial(tuple.__new__, RecordSpan)


def unpack(batch: Buffer, header: BatchHeader) -> bytes:
    """The bytes of a batch's records."""
    return bytes(decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size]))


def record_spans(records: bytes, header: BatchHeader) -> list[RecordSpan]:
    """All records of a batch, or :class:`~holdfast.wire.errors.WireError`."""
    spans: list[RecordSpan] = []
    last_offset_delta, size, end = header.last_offset_delta, len(records), 0
    least_delta, greatest_delta = _MIN_TIMESTAMP - header.base_timestamp, _MAX_TIMESTAMP - header.base_timestamp
    try:
        for _ in range(header.record_count):
            start = end
            length, position = decode_varint(records, start)
            end = position + length
            if length < 1 or end > size:
                raise BatchError(BatchFault.INVALID_RECORD, f"record of {length} bytes does not fit")
            timestamp_delta, position = decode_varint(records, position + 1)  # after one unused byte of attributes
            offset_delta, position = decode_varint(records, position)
            key_length, position = decode_varint(records, position)
            key = None
            if key_length >= 0:
                key = records[position : position + key_length]
                position += key_length
            value_length, position = decode_varint(records, position)
            value_end = position + value_length if value_length > 0 else position
            if value_end > end or not 0 <= offset_delta <= last_offset_delta:
                raise BatchError(BatchFault.INVALID_RECORD, "a record's length does not match its contents")
            if not least_delta <= timestamp_delta <= greatest_delta:
                raise BatchError(BatchFault.INVALID_RECORD, "a record's timestamp does not fit 64 bits")
            spans.append(_span((offset_delta, timestamp_delta, key, value_length >= 0, start, end)))
    except IndexError:
        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one") from None
    if end != size:
        raise BatchError(BatchFault.INVALID_RECORD, f"{size - end} bytes after the last record")
    return spans


def value_span(records: bytes, span: RecordSpan) -> tuple[int, int]:
    """Where the value of a record starts and ends."""
    _, position = decode_varint(records, span.start)
    _, position = decode_varint(records, position + 1)
    _, position = decode_varint(records, position)
    key_length, position = decode_varint(records, position)
    length, start = decode_varint(records, position + max(0, key_length))
    return start, start + max(0, length)


def with_records(
    batch: bytes, header: BatchHeader, records: bytes, kept: Sequence[RecordSpan], delete_horizon_ms: int | None
) -> bytes:
    """The batch with only these of its records: same offsets, same codec, same producer.

    A delete horizon (KIP-534) replaces the base timestamp, and an attribute bit is set.
    """
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if delete_horizon_ms is None:
        body = b"".join([records[span.start : span.end] for span in kept])
    else:
        base_timestamp, attributes = min(delete_horizon_ms, _MAX_TIMESTAMP), attributes | DELETE_HORIZON
        shift = header.base_timestamp - base_timestamp
        body = b"".join([_with_timestamp(records, span, span.timestamp_delta + shift) for span in kept])
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = header.base_timestamp + max(span.timestamp_delta for span in kept)
    packed = compress(Codec(header.codec), body)
    return _assembled(batch, packed, attributes, (base_timestamp, max_timestamp), len(kept))


def without_records(batch: bytes, header: BatchHeader) -> bytes:
    """Only the header, for a batch whose offset or producer must be kept."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _assembled(batch, b"", attributes, (header.max_timestamp, header.max_timestamp), 0)


def _assembled(batch: bytes, packed: bytes, attributes: int, timestamps: tuple[int, int], count: int) -> bytes:
    data = bytearray(batch[:HEADER_SIZE]) + packed
    _INT32.pack_into(data, _LENGTH_AT, len(data) - LENGTH_OVERHEAD)
    _INT16.pack_into(data, _ATTRIBUTES_AT, attributes)
    _TIMESTAMPS.pack_into(data, _TIMESTAMPS_AT, *timestamps)
    _INT32.pack_into(data, _COUNT_AT, count)
    _UINT32.pack_into(data, _CRC_AT, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def _with_timestamp(records: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    _, position = decode_varint(records, span.start)
    _, rest = decode_varint(records, position + 1)
    body = records[position : position + 1] + _encoded(timestamp_delta) + records[rest : span.end]
    return _encoded(len(body)) + body


def _encoded(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 64)
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
