"""Looking at the records of a batch before it is stored, where the topic or the header's timestamps ask for it.

There may be half a million of them in a few hundred bytes, so this is a generator that pauses every few of them, and
nothing is made of a record but what is asked: whether it has a key, and when it is from.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, TypeVar

from holdfast.log.config import LogConfig
from holdfast.wire.batch import MIN_RECORD_SIZE, NO_TIMESTAMP, Batch, BatchError, BatchFault, BatchHeader, Buffer
from holdfast.wire.records import MAX_INT64, MIN_INT64, decode_varint, with_max_timestamp

T = TypeVar("T")

PAUSE_RECORDS: Final = 128
"""So many records are looked at between two places to pause: about a tenth of a millisecond."""

WINDOW_BYTES: Final = 64 * 1024
"""The records are copied piece by piece, because Python finds a byte of `bytes` fastest."""

HEAD_BYTES: Final = 64
"""More than the varints in front of a record's key take: up to ten bytes each."""

_NULL: Final = 1
"""A length of -1 as a varint."""

MOST_NAMED: Final = 10_000
"""So many bad records of a batch are named. The others are refused with them."""


class RecordError(NamedTuple):
    """One bad record, by its place in the batch (KIP-467)."""

    batch_index: int
    message: str


class RecordsRefused(BatchError):
    """Some records of a batch must not be stored, and so the batch is not."""

    def __init__(self, fault: BatchFault, message: str, errors: list[RecordError]) -> None:
        super().__init__(fault, message)
        self.errors = errors


class Found(NamedTuple):
    latest: int
    """The largest timestamp."""
    keyless: list[int]
    """The records without a key, by their place in the batch."""
    untimely: list[tuple[int, int]]
    """Those outside of the time that was asked for: place and timestamp."""


def inspect(
    records: Buffer, header: BatchHeader, earliest: int = MIN_INT64, latest: int = MAX_INT64
) -> Generator[None, None, Found]:
    """Goes through the unpacked records; raises BatchError where they are not what the header says."""
    count, size, base = header.record_count, len(records), header.base_timestamp
    if count > size // MIN_RECORD_SIZE:
        raise BatchError(BatchFault.INVALID_RECORD, f"{count} records cannot be in {size} bytes")
    keyless: list[int] = []
    untimely: list[tuple[int, int]] = []
    greatest = MIN_INT64 * 2
    last_offset_delta = header.last_offset_delta
    least_delta, greatest_delta = earliest - base, latest - base
    window, window_at, end = b"", 0, 0
    try:
        for index in range(count):
            if not index % PAUSE_RECORDS:
                yield
            position = end - window_at
            if position + HEAD_BYTES > len(window):
                window_at, position = end, 0
                window = bytes(records[end : end + WINDOW_BYTES])
            length = window[position]
            if length < 0x80 and not length & 1:
                length >>= 1
                position += 1
            else:
                length, position = decode_varint(window, position)
            end = window_at + position + length
            if length < MIN_RECORD_SIZE - 1 or end > size:
                raise BatchError(BatchFault.INVALID_RECORD, f"record of {length} bytes does not fit")
            delta = window[position + 1]  # behind one byte of attributes, unused
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
                position += 2
            else:
                delta, position = decode_varint(window, position + 1)
            if delta > greatest:
                greatest = delta
            offset_delta = window[position]
            if offset_delta < 0x80 and not offset_delta & 1:
                offset_delta >>= 1
                position += 1
            else:
                offset_delta, position = decode_varint(window, position)
            key = window[position]
            if key < 0x80 and not key & 1:
                position += 1 + (key >> 1)
            elif key == _NULL:
                position += 1
                if len(keyless) < MOST_NAMED:
                    keyless.append(index)
            else:
                key, position = decode_varint(window, position)
                if key >= 0:
                    position += key
                elif len(keyless) < MOST_NAMED:
                    keyless.append(index)
            if window_at + position >= end or not 0 <= offset_delta <= last_offset_delta:
                raise BatchError(BatchFault.INVALID_RECORD, "a record's length does not match its contents")
            if position + HEAD_BYTES > len(window):
                window_at, position = window_at + position, 0
                window = bytes(records[window_at : window_at + WINDOW_BYTES])
            value = window[position]
            if value == _NULL:
                position += 1
            elif value < 0x80 and not value & 1:
                position += 1 + (value >> 1)
            else:
                value, position = decode_varint(window, position)
                position += max(0, value)
            if window_at + position >= end:
                raise BatchError(BatchFault.INVALID_RECORD, "a record's length does not match its contents")
            if not least_delta <= delta <= greatest_delta:
                timestamp = base + delta
                if not MIN_INT64 <= timestamp <= MAX_INT64:
                    raise BatchError(BatchFault.INVALID_RECORD, "a record's timestamp does not fit 64 bits")
                if timestamp != NO_TIMESTAMP and len(untimely) < MOST_NAMED:
                    untimely.append((index, timestamp))
    except IndexError:
        raise BatchError(BatchFault.INVALID_RECORD, "the records end in the middle of one") from None
    if end != size:
        raise BatchError(BatchFault.INVALID_RECORD, f"{size - end} bytes after the last record")
    return Found(base + greatest, keyless, untimely)


def asks_for_inspection(config: LogConfig, header: BatchHeader, now_ms: int) -> bool:
    """Whether a batch's records must be looked at: each needs a key, or the header's timestamps cannot be right."""
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
    """The batch as it can be stored, or `RecordsRefused` with the bad ones.

    The sentences are Kafka's, because producers show them to their users (KIP-467).
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


def at_once(work: Generator[None, None, T]) -> T:
    """The outcome of a generator that need not pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
