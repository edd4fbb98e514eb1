"""The record batches of one partition in a Fetch response, from their bytes to Arrow columns.

A broker sends whole batches as they are stored. The first one may begin before the requested offset, the last one may
be truncated, and batches may be missing where compaction has removed all their records. A broker also sends records of
aborted transactions; the response says which ones they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from holdfast.spark.batch_headers import BatchHeaders, CorruptBatch, UnsupportedBatch
from holdfast.spark.record_boundaries import record_starts
from holdfast.spark.record_columns import OFFSET_COLUMN, RecordSpans, record_columns
from holdfast.types import TopicPartition
from holdfast.wire.batch import CRC_START, MIN_RECORD_SIZE, BatchError, BatchFault, Buffer
from holdfast.wire.compression import Codec, decompress
from holdfast.wire.errors import WireError
from holdfast.wire.records import decode_batch

MAX_CHUNK_RECORDS: Final = 20_000
MAX_CHUNK_BYTES: Final = 8 * 1024 * 1024
"""The number of records that are decoded together: enough to make the overhead of numpy calls negligible, and few
enough to limit memory."""

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_ABORT: Final = 0


class AbortedTransaction(NamedTuple):
    first_offset: int
    producer_id: int


class DecodedRecords(NamedTuple):
    columns: list[Any]
    next_offset: int
    """All records before it are in these columns, or in earlier ones."""


class _Group(NamedTuple):
    """Batches whose records are in one buffer."""

    buffer: Buffer
    batches: BatchHeaders


class BatchDecoder:
    """Decodes the batches of one partition in one response: the records from `start` up to, but excluding, `end`."""

    def __init__(
        self, where: TopicPartition, start: int, end: int, *, include_headers: bool, check_crcs: bool = True
    ) -> None:
        self._where = where
        self._start = start
        self._end = end
        self._include_headers = include_headers
        self._check_crcs = check_crcs

    def decode(
        self, records: Buffer, batches: BatchHeaders, aborted: Sequence[AbortedTransaction] = ()
    ) -> Iterator[DecodedRecords]:
        """Some thousand rows at once. Raises CorruptBatch, and UnsupportedBatch."""
        batches = batches.select(batches.base_offset < self._end)
        if self._check_crcs:
            _check_crcs(records, batches)
        wanted = (batches.last_offset >= self._start) & ~batches.is_control & (batches.record_count != 0)
        if aborted:
            wanted &= ~_aborted(records, batches, aborted)
        try:
            for group in _groups(records, batches.select(wanted)):
                yield from self._decode_group(group)
        except (WireError, IndexError) as error:  # an index past the end is a length within the last bytes
            raise UnsupportedBatch(str(error)) from error

    def _decode_group(self, group: _Group) -> Iterator[DecodedRecords]:
        batches = group.batches
        counts = batches.record_count
        if ((counts < 0) | (counts > (batches.end - batches.body) // MIN_RECORD_SIZE)).any():
            raise BatchError(BatchFault.INVALID_RECORD, "a batch cannot have so many records")
        data = np.frombuffer(group.buffer, np.uint8)
        pieces = _Pieces(group)
        ranges = zip(batches.body.tolist(), batches.end.tolist(), counts.tolist(), strict=True)
        for number, (position, end, left) in enumerate(ranges):
            while left:
                if left == 1:
                    # Whether it ends where the batch ends is checked for all of these together.
                    pieces.add_one(number, position, end)
                    position, left = end, 0
                else:
                    found, position = record_starts(group.buffer, data, position, end, min(left, pieces.room))
                    if position > end or not len(found):
                        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one")
                    pieces.add(number, found, position)
                    left -= len(found)
                if not pieces.room:
                    yield self._decode_records(pieces)
                    pieces = _Pieces(group)
            if position != end:
                raise BatchError(BatchFault.INVALID_RECORD, f"{end - position} bytes after the last record")
        if pieces.numbers:
            yield self._decode_records(pieces)

    def _decode_records(self, pieces: _Pieces) -> DecodedRecords:
        columns = record_columns(
            pieces.spans(), *self._where, self._start, self._end, include_headers=self._include_headers
        )
        offsets = columns[OFFSET_COLUMN]
        return DecodedRecords(columns, offsets[-1].as_py() + 1 if len(offsets) else self._start)


class _Pieces:
    """Records of successive batches, until they are decoded together."""

    def __init__(self, group: _Group) -> None:
        self._group = group
        self.room = MAX_CHUNK_RECORDS
        self.numbers: list[int] = []
        """The index of the batch of each piece."""
        self._counts: list[int] = []
        self._ends: list[int] = []
        self._starts: list[Any] = []
        self._single: list[int] = []
        """The last starts, as long as they are those of batches with one record."""

    def add_one(self, number: int, start: int, end: int) -> None:
        self.numbers.append(number)
        self._counts.append(1)
        self._ends.append(end)
        self._single.append(start)
        self.room -= 1

    def add(self, number: int, starts: Any, end: int) -> None:
        self._flush()
        self.numbers.append(number)
        self._counts.append(len(starts))
        self._ends.append(end)
        self._starts.append(starts)
        self.room -= len(starts)

    def _flush(self) -> None:
        if self._single:
            self._starts.append(np.array(self._single, np.int64))
            self._single = []

    def spans(self) -> RecordSpans:
        self._flush()
        starts = self._starts[0] if len(self._starts) == 1 else np.concatenate(self._starts)
        counts, ends = np.array(self._counts, np.int64), np.array(self._ends, np.int64)
        return RecordSpans(self._group.buffer, starts, counts, ends, self._group.batches.select(self.numbers))


def _groups(records: Buffer, batches: BatchHeaders) -> Iterator[_Group]:
    """Uncompressed records stay in the receive buffer. Others are decompressed into one buffer as long as it is small,
    because a single batch may have few records."""
    packed = batches.codec != Codec.NONE
    changes = [0, *(np.flatnonzero(packed[1:] != packed[:-1]) + 1).tolist(), batches.size]
    for first, after in pairwise(changes):
        run = batches.select(slice(first, after))
        if run.size and packed[first]:
            yield from _unpacked(records, run)
        elif run.size:
            yield _Group(records, run)


def _unpacked(records: Buffer, batches: BatchHeaders) -> Iterator[_Group]:
    view = memoryview(records)
    first, pieces, ends = 0, list[Buffer](), [0]
    ranges = zip(batches.codec.tolist(), batches.body.tolist(), batches.end.tolist(), strict=True)
    for number, (codec, start, end) in enumerate(ranges):
        pieces.append(decompress(codec, view[start:end]))
        ends.append(ends[-1] + len(pieces[-1]))
        if ends[-1] >= MAX_CHUNK_BYTES or number == batches.size - 1:
            bounds = np.array(ends, np.int64)
            run = batches.select(slice(first, number + 1))
            yield _Group(b"".join(pieces), run._replace(body=bounds[:-1], end=bounds[1:]))
            first, pieces, ends = number + 1, [], [0]


def _check_crcs(records: Buffer, batches: BatchHeaders) -> None:
    # The library in C takes arrays, and needs no copy then.
    data: Any = np.frombuffer(records, np.uint8) if google_crc32c.implementation == "c" else bytes(records)
    crc32c = google_crc32c.value
    ranges = zip((batches.position + CRC_START).tolist(), batches.end.tolist(), strict=True)
    wrong = np.array([crc32c(data[start:end]) for start, end in ranges], np.int64) != batches.crc
    if wrong.any():
        offset = batches.base_offset[wrong.argmax()]
        raise CorruptBatch(f"the CRC of the batch at offset {offset} does not match its bytes")


def _aborted(records: Buffer, batches: BatchHeaders, aborted: Sequence[AbortedTransaction]) -> Any:
    """The batches of aborted transactions. As in Kafka's consumer, a producer is in an aborted transaction from its
    first offset up to the abort marker."""
    upcoming = sorted(aborted, reverse=True)
    in_aborted: set[int] = set()
    found = np.zeros(batches.size, bool)
    fields = (batches.position, batches.last_offset, batches.producer_id, batches.is_control, batches.is_transactional)
    for number, (position, last_offset, producer_id, is_control, is_transactional) in enumerate(
        zip(*(field.tolist() for field in fields), strict=True)
    ):
        while upcoming and upcoming[-1].first_offset <= last_offset:
            in_aborted.add(upcoming.pop().producer_id)
        if is_control and producer_id in in_aborted and _is_abort_marker(records, position):
            in_aborted.discard(producer_id)
        found[number] = is_transactional and producer_id in in_aborted
    return found


def _is_abort_marker(records: Buffer, position: int) -> bool:
    """Whether a control batch is an abort marker."""
    try:
        (record,) = decode_batch(records, position, check_crc=False)
        _version, kind = _CONTROL_KEY.unpack_from(record.key or b"")
    except (ValueError, struct.error, WireError):
        return False
    return bool(kind == _ABORT)
