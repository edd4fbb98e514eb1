"""Inspects the records of a batch before it is stored, if the topic or the header's timestamps require it.

A few hundred bytes may contain half a million records. The inspection is therefore a generator that pauses regularly,
and it decodes only what is needed: whether a record has a key, and its timestamp.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, TypeVar

from holdfast.log.config import LogConfig
from holdfast.wire.batch import MIN_RECORD_SIZE, NO_TIMESTAMP, Batch, BatchError, BatchFault, BatchHeader, Buffer
from holdfast.wire.records import MAX_INT64, MIN_INT64, decode_varint, with_max_timestamp

T = TypeVar("T")

PAUSE_RECORDS: Final = 128
"""The number of records between two pauses: about a tenth of a millisecond."""

WINDOW_BYTES: Final = 64 * 1024
"""The records are copied piece by piece, because Python finds a byte of `bytes` fastest."""

HEAD_BYTES: Final = 64
"""More than the varints in front of a record's key take: up to ten bytes each."""

_MISMATCH: Final = "a record's length does not match its contents"

_NULL: Final = 1
"""A length of -1 as a varint."""

MAX_NAMED_ERRORS: Final = 10_000
"""The number of invalid records of a batch that are reported. The whole batch is rejected."""


class RecordError(NamedTuple):
    """One invalid record, by its index in the batch (KIP-467)."""

    batch_index: int
    message: str


class RecordsRefused(BatchError):
    """Some records of a batch are invalid, so the batch is not stored."""

    def __init__(self, fault: BatchFault, message: str, errors: list[RecordError]) -> None:
        super().__init__(fault, message)
        self.errors = errors


class Found(NamedTuple):
    latest: int
    """The largest timestamp."""
    keyless: list[int]
    """The records without a key, by their index in the batch."""
    untimely: list[tuple[int, int]]
    """The records outside the allowed time: index and timestamp."""


def inspect(
    records: Buffer, header: BatchHeader, earliest: int = MIN_INT64, latest: int = MAX_INT64
) -> Generator[None, None, Found]:
    """Inspects the decompressed records. Raises BatchError if they do not match the header."""
    count, size = header.record_count, len(records)
    if count > size // MIN_RECORD_SIZE:
        raise BatchError(BatchFault.INVALID_RECORD, f"{count} records cannot be in {size} bytes")
    walk = _Walk(records, header, earliest, latest)
    try:
        for first in range(0, count, PAUSE_RECORDS):
            yield
            walk.over(range(first, min(first + PAUSE_RECORDS, count)))
    except IndexError:
        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one") from None
    if walk.end != size:
        raise BatchError(BatchFault.INVALID_RECORD, f"{size - walk.end} bytes after the last record")
    return Found(header.base_timestamp + walk.greatest_delta, walk.keyless, walk.untimely)


class _Walk:
    """Iterates over the records of a batch and collects the required properties."""

    def __init__(self, records: Buffer, header: BatchHeader, earliest: int, latest: int) -> None:
        self.end = 0
        self.greatest_delta = MIN_INT64 * 2
        self.keyless: list[int] = []
        self.untimely: list[tuple[int, int]] = []
        self._records = records
        self._header = header
        base = header.base_timestamp
        self._limits = earliest - base, latest - base, header.last_offset_delta, len(records)
        self._window, self._window_at = b"", 0

    def over(self, indexes: range) -> None:
        """The next records. Varints of one byte, the usual ones, are decoded inline, because a call would double the
        time."""
        window, window_at, end, greatest = self._window, self._window_at, self.end, self.greatest_delta
        least_delta, most_delta, last_offset_delta, size = self._limits
        for index in indexes:
            position = end - window_at
            if position + HEAD_BYTES > len(window):
                window, window_at, position = self._copy(end), end, 0
            length = window[position]
            if not length & 0x81:
                length, position = length >> 1, position + 1
            else:
                length, position = decode_varint(window, position)
            end = window_at + position + length
            if length < MIN_RECORD_SIZE - 1 or end > size:
                raise BatchError(BatchFault.INVALID_RECORD, f"record of {length} bytes does not fit")
            delta = window[position + 1]  # after one unused byte of attributes
            if delta < 0x80:
                delta, position = (delta >> 1) ^ -(delta & 1), position + 2
            else:
                delta, position = decode_varint(window, position + 1)
            if delta > greatest:
                greatest = delta
            offset_delta = window[position]
            if not offset_delta & 0x81:
                offset_delta, position = offset_delta >> 1, position + 1
            else:
                offset_delta, position = decode_varint(window, position)
            key = window[position]
            if not key & 0x81:
                position += 1 + (key >> 1)
            else:
                position = self._after_long_or_null_key(window, position, index)
            if window_at + position >= end or not 0 <= offset_delta <= last_offset_delta:
                raise BatchError(BatchFault.INVALID_RECORD, _MISMATCH)
            if position + HEAD_BYTES > len(window):
                window, window_at, position = self._copy(window_at + position), window_at + position, 0
            value = window[position]
            if value < 0x80:
                position += 1 if value & 1 else 1 + (value >> 1)
            else:
                value, position = decode_varint(window, position)
                position += max(0, value)
            if window_at + position >= end:
                raise BatchError(BatchFault.INVALID_RECORD, _MISMATCH)
            if not least_delta <= delta <= most_delta:
                self._note_untimely(index, delta)
        self._window, self._window_at, self.end, self.greatest_delta = window, window_at, end, greatest

    def _copy(self, position: int) -> bytes:
        return bytes(self._records[position : position + WINDOW_BYTES])

    def _after_long_or_null_key(self, window: bytes, position: int, index: int) -> int:
        length, position = (-1, position + 1) if window[position] == _NULL else decode_varint(window, position)
        if length >= 0:
            return position + length
        if len(self.keyless) < MAX_NAMED_ERRORS:
            self.keyless.append(index)
        return position

    def _note_untimely(self, index: int, delta: int) -> None:
        timestamp = self._header.base_timestamp + delta
        if not MIN_INT64 <= timestamp <= MAX_INT64:
            raise BatchError(BatchFault.INVALID_RECORD, "a record's timestamp does not fit 64 bits")
        if timestamp != NO_TIMESTAMP and len(self.untimely) < MAX_NAMED_ERRORS:
            self.untimely.append((index, timestamp))


def needs_inspection(config: LogConfig, header: BatchHeader, now_ms: int) -> bool:
    """Whether the records of a batch must be inspected: each needs a key, or the header's timestamps cannot be
    right."""
    if config.compacts:
        return True
    base, greatest = header.base_timestamp, header.max_timestamp
    if config.message_timestamp_type == "LogAppendTime":
        return False
    in_time = now_ms - base <= config.message_timestamp_before_max_ms or base == NO_TIMESTAMP
    return not in_time or greatest < base or greatest - now_ms > config.message_timestamp_after_max_ms


def inspected(
    config: LogConfig, batch: Batch, records: Buffer, where: str, now_ms: int
) -> Generator[None, None, Batch]:
    """The batch to store, or `RecordsRefused` with the invalid records.

    The messages are Kafka's, because producers show them to their users (KIP-467).
    """
    header, is_create_time = batch.header, config.message_timestamp_type != "LogAppendTime"
    earliest, latest = MIN_INT64, MAX_INT64
    if is_create_time:
        earliest = max(earliest, now_ms - config.message_timestamp_before_max_ms)
        latest = min(latest, now_ms + config.message_timestamp_after_max_ms)
    found = yield from inspect(records, header, earliest, latest)
    errors: list[RecordError] = []
    if config.compacts:
        message = f"Compacted topic cannot accept message without key in topic partition {where}"
        errors = [RecordError(index, message) for index in found.keyless]
    if found.untimely:
        asked = f"The timestamp should be within [{earliest}, {latest}]"
        errors += [
            RecordError(index, f"Timestamp {timestamp} of message with offset {index} is out of range. {asked}")
            for index, timestamp in found.untimely
        ]
        message = "One or more records have been rejected due to invalid timestamp"
        raise RecordsRefused(BatchFault.INVALID_TIMESTAMP, message, sorted(errors))
    if errors:
        raise RecordsRefused(BatchFault.INVALID_RECORD, _summary(errors), errors)
    if is_create_time and header.max_timestamp != found.latest:
        batch = with_max_timestamp(batch, found.latest)
    return batch


def _summary(errors: Sequence[RecordError]) -> str:
    named = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
    total = f"One or more records have been rejected due to {len(errors)} record errors in total"
    return f"{total}, and only showing the first three errors at most: [{named}]"


def run_to_completion(work: Generator[None, None, T]) -> T:
    """The outcome of a generator that need not pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
