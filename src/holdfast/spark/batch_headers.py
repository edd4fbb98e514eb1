"""The headers of all batches in a response, as arrays, because a response may have thousands of batches with one record
each."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, Self

import numpy as np

from holdfast.wire.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    Buffer,
)

_LENGTH_AT: Final = 8
_LENGTH_AND_MAGIC = struct.Struct(">i4xb")
_FIELDS: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""As in `holdfast.wire.batch`."""
assert _FIELDS.itemsize == HEADER_SIZE


class UnsupportedBatch(Exception):
    """A batch that librdkafka must read: it has an older message format, or invalid contents with a correct CRC."""


class CorruptBatch(Exception):
    """The batch is corrupt."""


class BatchHeaders(NamedTuple):
    """Arrays with one element for each batch."""

    position: Any
    """The position of the first byte of the batch."""
    body: Any
    """The position of the first record."""
    end: Any
    """The position after the last record."""
    base_offset: Any
    last_offset: Any
    crc: Any
    attributes: Any
    base_timestamp: Any
    max_timestamp: Any
    producer_id: Any
    record_count: Any

    @property
    def size(self) -> int:
        return len(self.position)

    @property
    def next_offset(self) -> int:
        """The position after the last batch. There must be at least one."""
        return int(self.last_offset[-1]) + 1

    @property
    def codec(self) -> Any:
        return self.attributes & CODEC_MASK

    @property
    def has_log_append_time(self) -> Any:
        return (self.attributes & LOG_APPEND_TIME) != 0

    @property
    def is_transactional(self) -> Any:
        return (self.attributes & TRANSACTIONAL) != 0

    @property
    def is_control(self) -> Any:
        return (self.attributes & CONTROL) != 0

    def select(self, wanted: Any) -> Self:
        """The batches that a numpy index selects."""
        return self._replace(**{name: getattr(self, name)[wanted] for name in self._fields})


def split_batches(records: Buffer) -> BatchHeaders:
    """The complete batches. The last batch of a response may be truncated. Raises CorruptBatch, and UnsupportedBatch
    for an older format."""
    positions = _positions(records)
    data = np.frombuffer(records, np.uint8)
    headers = data[positions[:, None] + np.arange(HEADER_SIZE)].view(_FIELDS)[:, 0]
    base_offset = headers["base_offset"].astype(np.int64)
    last_offset = base_offset + headers["last_offset_delta"]
    if ((base_offset < 0) | (last_offset < base_offset)).any():
        raise CorruptBatch("a batch with offsets that cannot be")
    return BatchHeaders(
        positions,
        positions + HEADER_SIZE,
        positions + LENGTH_OVERHEAD + headers["batch_length"],
        base_offset,
        last_offset,
        *(
            headers[name].astype(np.int64)
            for name in ("crc", "attributes", "base_timestamp", "max_timestamp", "producer_id", "record_count")
        ),
    )


def _positions(records: Buffer) -> Any:
    found: list[int] = []
    position, size, read = 0, len(records), _LENGTH_AND_MAGIC.unpack_from
    last = size - _LENGTH_AT - _LENGTH_AND_MAGIC.size
    while position <= last:
        length, magic = read(records, position + _LENGTH_AT)
        if magic != MAGIC:
            raise UnsupportedBatch(f"message format v{magic}")
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise CorruptBatch(f"a batch of {length} bytes")
        if length > size - position - LENGTH_OVERHEAD:
            break
        found.append(position)
        position += length + LENGTH_OVERHEAD
    return np.array(found, np.int64)
