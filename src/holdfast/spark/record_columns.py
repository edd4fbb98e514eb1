"""Records of format v2 as Arrow columns, all at once.

A few numpy passes over an array of positions decode one field of all records. Arrow copies keys and values once: their
positions and the gaps between them are the offsets of a binary array over the received bytes, and every second element
is selected.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.spark.arrow import HEADERS, MS_TO_US, TIMESTAMP
from holdfast.spark.batch_headers import BatchHeaders
from holdfast.spark.varint_arrays import decode_varints
from holdfast.wire.batch import MIN_RECORD_SIZE, BatchError, BatchFault, Buffer
from holdfast.wire.records import decode_varint

OFFSET_COLUMN: Final = 4
_HEADER_ROUNDS: Final = 64
"""The number of headers of a record that are decoded together with those of other records. Further headers would need a
numpy pass each."""


class RecordSpans(NamedTuple):
    """Records within one buffer, of one batch or several."""

    buffer: Buffer
    starts: Any
    """The position of each record (of its length field), increasing."""
    counts: Any
    """The number of records in each piece of a batch."""
    ends: Any
    """The required end of the last record of each piece."""
    batches: BatchHeaders
    """The header of the batch of each piece."""


class Fields(NamedTuple):
    """Arrays of int64, with one element for each record. A length of -1 is null."""

    offset: Any
    timestamp: Any
    key_at: Any
    key_length: Any
    value_at: Any
    value_length: Any
    headers_at: Any
    end: Any

    def where(self, wanted: Any) -> Fields:
        return Fields(*(field[wanted] for field in self))


def record_columns(
    spans: RecordSpans, topic: str, partition: int, start: int, end: int, *, include_headers: bool
) -> list[Any]:
    """The columns of the records with offsets from `start` up to, but excluding, `end`. Raises BatchError."""
    data = np.frombuffer(spans.buffer, np.uint8)
    try:
        fields = _decode_fields(data, spans)
        stamp_types = _per_record(spans.batches.has_log_append_time, spans)
        wanted = (fields.offset >= start) & (fields.offset < end)
        if not wanted.all():
            fields, stamp_types = fields.where(wanted), np.broadcast_to(stamp_types, wanted.shape)[wanted]
        count = len(fields.offset)
        columns = [
            _binary(spans.buffer, fields.key_at, fields.key_length),
            _binary(spans.buffer, fields.value_at, fields.value_length),
            _repeat_text(topic, count),
            _numbers(pa.int32(), np.full(count, partition, np.int32)),
            _numbers(pa.int64(), fields.offset),
            _numbers(TIMESTAMP, fields.timestamp * MS_TO_US),
            _numbers(pa.int32(), np.ascontiguousarray(np.broadcast_to(stamp_types, count), np.int32)),
        ]
        if include_headers:
            columns.append(_headers(data, spans.buffer, fields))
    except IndexError:
        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one") from None
    return columns


# -- fields ------------------------------------------------------------------------------------------------------------


def _decode_fields(data: Any, spans: RecordSpans) -> Fields:
    length, at = decode_varints(data, spans.starts)
    _refuse((length < MIN_RECORD_SIZE - 1) | (length > len(data) - at), "a record's length is not possible")
    end = at + length
    _refuse(end[np.cumsum(spans.counts) - 1] != spans.ends, "the records do not end where their batch ends")
    timestamp_delta, at = decode_varints(data, at + 1)  # after one unused byte of attributes
    offset_delta, at = decode_varints(data, at)
    base_offset = _per_record(spans.batches.base_offset, spans)
    last_delta = _per_record(spans.batches.last_offset, spans) - base_offset
    _refuse((offset_delta < 0) | (offset_delta > last_delta), "an offset delta is outside of its batch")
    key_length, key_at = decode_varints(data, at)
    after_key = _after(key_at, key_length, end)
    value_length, value_at = decode_varints(data, after_key)
    headers_at = _after(value_at, value_length, end)
    _refuse(headers_at >= end, "a record's length does not match its contents")
    return Fields(
        base_offset + offset_delta,
        _timestamps(timestamp_delta, spans),
        key_at,
        key_length,
        value_at,
        value_length,
        headers_at,
        end,
    )


def _per_record(values: Any, spans: RecordSpans) -> Any:
    """A value of each batch, repeated for each of its records. If all are equal, a single value, which numpy
    broadcasts."""
    if len(values) == 1 or (values == values[0]).all():
        return values[0]
    return np.repeat(values, spans.counts)


def _timestamps(delta: Any, spans: RecordSpans) -> Any:
    batches = spans.batches
    timestamp = _per_record(batches.base_timestamp, spans) + delta
    if batches.has_log_append_time.any():
        appended = _per_record(batches.has_log_append_time, spans)
        timestamp = np.where(appended, _per_record(batches.max_timestamp, spans), timestamp)
    return timestamp


def _after(at: Any, length: Any, end: Any) -> Any:
    """The position after a field. A length of -1 is null, and takes no bytes."""
    _refuse((length < -1) | (length > end - at), "a key, a value or a header does not fit into its record")
    return at + np.maximum(length, 0)


def _refuse(wrong: Any, what: str) -> None:
    if wrong.any():
        raise BatchError(BatchFault.INVALID_RECORD, what)


# -- numbers and text --------------------------------------------------------------------------------------------------
# `pa.array` and `pa.scalar` import pandas. This doubles the CPU time of a worker's first task, and Spark's garbage
# collection after each task then visits 30,000 more objects, which takes as long as decoding 100,000 records.


def _numbers(kind: Any, values: Any, null: Any = None) -> Any:
    """A column over the memory of a contiguous array, whose elements must have the size of this type."""
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _repeat_text(text: str, count: int) -> Any:
    encoded = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)])


# -- bytes -------------------------------------------------------------------------------------------------------------


def _binary(buffer: Buffer, at: Any, length: Any) -> Any:
    """A column of these slices of the buffer. The positions increase; a length of -1 is null."""
    count = len(at)
    null = length < 0
    nulls = int(np.count_nonzero(null))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    # Element 2i is piece i, and element 2i + 1 the gap before the next one.
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    np.add(at, length, out=offsets[1::2], casting="unsafe")
    if nulls:
        offsets[1::2] += null
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(_numbers(pa.int32(), wanted, null if nulls else None))


# -- headers -----------------------------------------------------------------------------------------------------------


def _headers(data: Any, buffer: Buffer, fields: Fields) -> Any:
    """As in Spark's own source: null if a record has no headers."""
    count = len(fields.offset)
    if not data[fields.headers_at].any():
        return pa.nulls(count, HEADERS)
    counts, at = decode_varints(data, fields.headers_at)
    # A header is at least two lengths, one byte each.
    _refuse((counts < 0) | (counts > (fields.end - at) // 2), "a record cannot have so many headers")
    first = np.zeros(count + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    places = _HeaderPlaces(int(first[-1]))
    after = places.decode(data, buffer, counts, first[:-1], at, fields.end)
    _refuse(after != fields.end, "a record's length does not match its contents")
    names = _binary(buffer, places.name_at, places.name_length)
    contents = _binary(buffer, places.content_at, places.content_length)
    elements = pa.StructArray.from_arrays([_text(names), contents], fields=list(HEADERS.value_type))
    offsets = _numbers(pa.int32(), first.astype(np.int32), np.append(counts == 0, False))
    return pa.ListArray.from_arrays(offsets, elements, type=HEADERS)


class _HeaderPlaces:
    """Where the names and contents of all headers are, in the order of the records."""

    def __init__(self, total: int) -> None:
        self.name_at, self.name_length, self.content_at, self.content_length = np.zeros((4, total), np.int64)

    def decode(self, data: Any, buffer: Buffer, counts: Any, first: Any, at: Any, end: Any) -> Any:
        """The first headers of all records, then their second ones, and so on. Returns the positions after the last
        ones."""
        after = at.copy()
        for number in range(_HEADER_ROUNDS):
            more = np.flatnonzero(counts > number)
            if not len(more):
                return after
            after[more] = self._decode(data, first[more] + number, after[more], end[more])
        for record in np.flatnonzero(counts > _HEADER_ROUNDS).tolist():
            rest = range(int(first[record]) + _HEADER_ROUNDS, int(first[record] + counts[record]))
            after[record] = self._decode_one_by_one(buffer, rest, int(after[record]), int(end[record]))
        return after

    def _decode(self, data: Any, numbers: Any, at: Any, end: Any) -> Any:
        length, at = decode_varints(data, at)
        _refuse(length < 0, "a header without a key")
        self.name_at[numbers], self.name_length[numbers] = at, length
        length, at = decode_varints(data, _after(at, length, end))
        self.content_at[numbers], self.content_length[numbers] = at, length
        return _after(at, length, end)

    def _decode_one_by_one(self, buffer: Buffer, numbers: range, at: int, end: int) -> int:
        for number in numbers:
            for starts, lengths, least in (
                (self.name_at, self.name_length, 0),
                (self.content_at, self.content_length, -1),
            ):
                length, at = decode_varint(buffer, at)
                if not least <= length <= end - at:
                    raise BatchError(BatchFault.INVALID_RECORD, "a header does not fit into its record")
                starts[number], lengths[number] = at, length
                at += max(length, 0)
        return at


def _text(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: replaced as in Java
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
