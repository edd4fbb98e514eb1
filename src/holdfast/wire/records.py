"""The records inside a batch.

The broker decodes the records of a batch only if the protocol requires it (the exact offset of a timestamp). Clients,
the group log and tests also use this module. Lengths are untrusted: each is compared with the remaining bytes before it
is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from google_crc32c import value as crc32c

from holdfast.wire.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MIN_RECORD_SIZE,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Batch,
    BatchError,
    BatchFault,
    BatchHeader,
    Buffer,
    parse_header,
    with_timestamps,
)
from holdfast.wire.compression import DEFAULT_MAX_OUTPUT, Codec, compress, decompress

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1

_NO_EPOCH = -1

_FRONT = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")


class Record(NamedTuple):
    """A record of an application. In a stored record, `offset` is its offset in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# Takes half the time of a call with positional arguments, and there is one for each record.
_record = partial(tuple.__new__, Record)


def encode_batch(
    records: Sequence[Record],
    *,
    compression: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytes:
    """One batch of all `records`; the first one's offset and timestamp are the bases of the others."""
    if not records:
        raise ValueError("a batch has at least one record")
    base_offset, base_timestamp = records[0].offset, records[0].timestamp
    body = b"".join([encoded_record(record, base_offset, base_timestamp) for record in records])
    attributes = int(compression)
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    attributes |= LOG_APPEND_TIME if log_append_time else 0
    behind_crc = _BODY.pack(
        attributes,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + (body if compression is Codec.NONE else compress(compression, body))
    length = CRC_START - LENGTH_OVERHEAD + len(behind_crc)
    return _FRONT.pack(base_offset, length, leader_epoch, MAGIC, crc32c(behind_crc)) + behind_crc


def batch_of(records: bytes, count: int, timestamp: int) -> Batch:
    """A batch of encoded records that all have one timestamp. The log assigns its offset."""
    if count < 1:
        raise ValueError("a batch has at least one record")
    body = 0, count - 1, timestamp, timestamp, NO_PRODUCER_ID, _NO_EPOCH, NO_SEQUENCE, count
    behind_crc = _BODY.pack(*body) + records
    length, crc = CRC_START - LENGTH_OVERHEAD + len(behind_crc), crc32c(behind_crc)
    front = 0, length, _NO_EPOCH, MAGIC, crc
    header = BatchHeader._make(front + body)
    return Batch(header, memoryview(bytearray(_FRONT.pack(*front) + behind_crc)))


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed: int = DEFAULT_MAX_OUTPUT,
    check_crc: bool = True,
) -> list[Record]:
    """All records of the batch at `position`, or :class:`~holdfast.wire.errors.WireError`."""
    return decode_records(*unpack_batch(buffer, position, max_decompressed=max_decompressed, check_crc=check_crc))


def unpack_batch(
    buffer: Buffer, position: int = 0, *, max_decompressed: int = DEFAULT_MAX_OUTPUT, check_crc: bool = True
) -> tuple[bytes, BatchHeader]:
    """The decompressed records of the batch at `position`, for `decode_records`. The header is checked."""
    header = parse_header(buffer, position)
    if header.magic != MAGIC:
        raise BatchError(BatchFault.UNSUPPORTED_MAGIC, f"batch of magic {header.magic}")
    end = position + header.batch_length + LENGTH_OVERHEAD
    if end - position < HEADER_SIZE or end > len(buffer):
        raise BatchError(BatchFault.CORRUPT, f"batch of {header.size} bytes in {len(buffer) - position}")
    view = memoryview(buffer)
    if check_crc and crc32c(bytes(view[position + CRC_START : end])) != header.crc:
        raise BatchError(BatchFault.CORRUPT, "the batch's CRC does not match")
    data = bytes(decompress(header.codec, view[position + HEADER_SIZE : end], max_decompressed))
    if not 0 <= header.record_count <= len(data) // MIN_RECORD_SIZE:
        message = f"{header.record_count} records cannot be in {len(data)} bytes"
        raise BatchError(BatchFault.INVALID_RECORD, message)
    return data, header


def with_max_timestamp(batch: Batch, latest: int) -> Batch:
    """The batch with the maximum timestamp that was found in its records.

    Some clients leave the header's field unset. Kafka recomputes it for every batch. Holdfast recomputes it only if it
    cannot be right, because the time index would be wrong.
    """
    header = batch.header
    data = with_timestamps(batch.data, header.base_offset, header.leader_epoch, latest, 0)
    return Batch(parse_header(data), memoryview(data))


def decode_records(data: bytes, header: BatchHeader) -> list[Record]:
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.has_log_append_time else None
    records: list[Record] = []
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = decode_varint(data, position)
            record_end = position + length
            if length < MIN_RECORD_SIZE - 1 or record_end > len(data):
                raise BatchError(BatchFault.INVALID_RECORD, f"record of {length} bytes does not fit")
            record = _decode_record(data, position, record_end, header, base_timestamp)
            records.append(record if fixed_timestamp is None else record._replace(timestamp=fixed_timestamp))
            position = record_end
    except IndexError:
        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one") from None
    except UnicodeDecodeError:
        raise BatchError(BatchFault.INVALID_RECORD, "a header key is not UTF-8") from None
    if position != len(data):
        raise BatchError(BatchFault.INVALID_RECORD, f"{len(data) - position} bytes after the last record")
    return records


def _decode_record(data: bytes, position: int, end: int, header: BatchHeader, base_timestamp: int) -> Record:
    timestamp_delta, position = decode_varint(data, position + 1)  # one byte of attributes, unused
    offset_delta, position = decode_varint(data, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise BatchError(BatchFault.INVALID_RECORD, f"offset delta {offset_delta} is outside of the batch")
    key, position = _sized(data, position, end)
    value, position = _sized(data, position, end)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if data[position] == 0:
        position += 1
    else:
        headers, position = _decode_headers(data, position, end)
    if position != end:
        raise BatchError(BatchFault.INVALID_RECORD, "a record's length does not match its contents")
    timestamp = base_timestamp + timestamp_delta
    if not MIN_INT64 <= timestamp <= MAX_INT64:
        raise BatchError(BatchFault.INVALID_RECORD, f"timestamp {timestamp} does not fit 64 bits")
    return _record((header.base_offset + offset_delta, timestamp, key, value, headers))


def _decode_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(data, position)
    # A header is at least two lengths, one byte each.
    if not 0 <= count <= (end - position) // 2:
        raise BatchError(BatchFault.INVALID_RECORD, f"{count} headers cannot be in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _sized(data, position, end)
        if name is None:
            raise BatchError(BatchFault.INVALID_RECORD, "a header without a key")
        content, position = _sized(data, position, end)
        headers.append((name.decode(), content))
    return tuple(headers), position


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80 and not byte & 1:
        # Without a call for up to 63 bytes, which covers most keys and many values.
        start = position + 1
        stop = start + (byte >> 1)
        if stop > end:
            raise BatchError(BatchFault.INVALID_RECORD, f"{byte >> 1} bytes where {end - start} are left")
        return data[start:stop], stop
    length, position = decode_varint(data, position)
    if length < 0:
        if length != -1:
            raise BatchError(BatchFault.INVALID_RECORD, f"a length of {length}")
        return None, position
    if length > end - position:
        raise BatchError(BatchFault.INVALID_RECORD, f"{length} bytes where {end - position} are left")
    return data[position : position + length], position + length


def decode_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes. Most have one or two."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    second = data[position]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
    raise BatchError(BatchFault.INVALID_RECORD, "a varint of more than ten bytes")


def encoded_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    body = b"".join(
        (
            b"\x00",  # no attributes
            encode_varint(timestamp - base_timestamp),
            encode_varint(offset - base_offset),
            _NULL if key is None else encode_varint(len(key)) + key,
            _NULL if value is None else encode_varint(len(value)) + value,
            _encoded_headers(headers) if headers else b"\x00",
        )
    )
    return encode_varint(len(body)) + body


def _encoded_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += (
            encode_varint(len(encoded)),
            encoded,
            _NULL if content is None else encode_varint(len(content)) + content,
        )
    return b"".join(parts)


def _encoded_varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_NULL = _encoded_varint(-1)
SMALL_VARINTS = tuple(map(_encoded_varint, range(512)))
"""Most lengths and deltas are small. A record has six of them, and a lookup takes a third of the time."""


def encode_varint(number: int) -> bytes:
    """A zigzag varint."""
    return SMALL_VARINTS[number] if 0 <= number < 512 else _encoded_varint(number)
