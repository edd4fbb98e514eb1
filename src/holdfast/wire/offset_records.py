"""The records of committed offsets, many at a time.

A commit stores one record for each partition, and nearly all records of `__consumer_offsets` are of this type. The
records of one group and topic differ only in a few numbers:

    length, attributes, timestamp delta       the same, as long as the offset delta has the same length
    offset delta
    length of the key, version, group, topic  the same
    partition, length of the value, value version 3, offset, leader epoch, no metadata, time of the commit, no headers

Therefore one call of struct writes or reads a record (docs/decisions/0026-commits-in-bulk.md). `group_records` and
`records`, which handle all other records, take several times as long. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple, overload

from holdfast.types import TopicPartition
from holdfast.wire.batch import Batch, BatchHeader
from holdfast.wire.errors import WireError
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.group_records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_record,
    names_in,
    offset_key_prefix,
)
from holdfast.wire.records import (
    MAX_INT64,
    SMALL_VARINTS,
    Record,
    batch_of,
    decode_varint,
    encode_varint,
    encoded_record,
)

_PARTITION_BYTES: Final = 4
_VALUE_VERSION: Final = 3
_REST: Final = Struct(">iBhqihqB")
"""The fields after the topic: partition, length of the value, its version, offset, leader epoch, length of the
metadata, time of the commit, number of headers."""
_VALUE_LENGTH: Final = encode_varint(_REST.size - _PARTITION_BYTES - 2)[0]
_NO_DELTA: Final = b"\x00\x00"
"""No attributes, and the timestamp of the batch."""
_SMALL: Final = len(SMALL_VARINTS)
_ONE_BYTE: Final = 127
"""A larger byte is followed by another byte of the varint."""
_INVALID: Final = -1
_FIRST_WIDE: Final = 64
"""The first offset delta of two bytes."""
_MAX_DELTA: Final = (1 << 13) - 1
"""The last one. Holdfast never writes as many offsets in one batch."""


@dataclass(slots=True, eq=False)
class OffsetRecords(Sequence[GroupRecord]):
    """The records of one commit: a key and a value for each partition, created on access."""

    group_id: str
    offsets: Mapping[TopicPartition, OffsetCommitValue]

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[GroupRecord]:
        for (topic, partition), value in self.offsets.items():
            yield OffsetCommitKey(self.group_id, topic, partition), value

    @overload
    def __getitem__(self, index: int) -> GroupRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[GroupRecord]: ...

    def __getitem__(self, index: int | slice) -> GroupRecord | Sequence[GroupRecord]:
        return list(self)[index]


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode_offsets(records: OffsetRecords, now_ms: int) -> Batch:
    """One batch of all records, for the log."""
    return batch_of(_encode_offsets(records.group_id, records.offsets, now_ms), len(records.offsets), now_ms)


def _encode_offsets(group_id: str, offsets: Mapping[TopicPartition, OffsetCommitValue], now_ms: int) -> bytes:
    parts: list[bytes] = []
    named, same_until, is_short = "", 0, False
    front = middle = b""
    pack = _REST.pack
    try:
        for index, ((topic, partition), value) in enumerate(offsets.items()):
            if value.metadata or value.expire_timestamp != -1 or value.topic_id is not ZERO_UUID or index > _MAX_DELTA:
                record = encode_record(OffsetCommitKey(group_id, topic, partition), value)
                parts.append(encoded_record(Record(index, now_ms, *record), 0, now_ms))
                continue
            if topic != named or index >= same_until:
                named, is_short = topic, index < _FIRST_WIDE
                same_until = _FIRST_WIDE if is_short else _MAX_DELTA + 1
                front, middle = _constant_parts(group_id, topic, 1 if is_short else 2)
                pack = _layout(len(front), 1 if is_short else 2, len(middle)).pack
            parts.append(
                pack(
                    front,
                    2 * index if is_short else _wide(index),
                    middle,
                    partition,
                    _VALUE_LENGTH,
                    _VALUE_VERSION,
                    value.offset,
                    value.leader_epoch,
                    0,
                    value.commit_timestamp,
                    0,
                )
            )
    except error as failure:
        raise WireError(f"cannot encode the offsets of {group_id[:100]}: {failure}") from failure
    return b"".join(parts)


def _constant_parts(group_id: str, topic: str, delta_size: int) -> tuple[bytes, bytes]:
    """The bytes before the offset delta, and those after it up to the partition."""
    prefix = offset_key_prefix(group_id, topic)
    key_length = len(prefix) + _PARTITION_BYTES
    middle = (SMALL_VARINTS[key_length] if key_length < _SMALL else encode_varint(key_length)) + prefix
    length = len(_NO_DELTA) + delta_size + len(middle) + _REST.size
    return (SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)) + _NO_DELTA, middle


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_offsets(data: bytes, header: BatchHeader) -> list[OffsetRecords] | None:
    """The records of a batch that contains only offsets without metadata, in order; None if it contains any other
    record.

    `data` and `header` are those of `unpack_batch`.
    """
    found: list[OffsetRecords] = []
    if not 0 <= header.base_timestamp <= MAX_INT64 - _ONE_BYTE:
        return None
    position, left = 0, header.record_count
    while left > 0:
        run = _Run.at(data, position)
        if run is None:
            return None
        offsets, count = run.read(data, position, left, header.last_offset_delta)
        if count == 0:
            return None
        found.append(OffsetRecords(run.group_id, offsets))
        position, left = position + count * run.layout.size, left - count
    return found if position == len(data) else None


class _Run(NamedTuple):
    """Consecutive records of one group and topic whose offset deltas have the same length."""

    group_id: str
    topic: str
    front: bytes
    middle: bytes
    layout: Struct
    delta_of: Callable[[int], int]

    @classmethod
    def at(cls, data: bytes, position: int) -> _Run | None:
        """The layout of the record at that position; None if it is not an offset without metadata."""
        try:
            length, start = decode_varint(data, position)
            _, key_at = decode_varint(data, start + len(_NO_DELTA))
            key_length, key_start = decode_varint(data, key_at)
        except (IndexError, WireError):
            return None
        front_end, key_end = start + len(_NO_DELTA), key_start + key_length - _PARTITION_BYTES
        end, delta_size = start + length, key_at - front_end
        has_room = end <= len(data) and end == key_end + _REST.size
        if not has_room or delta_size not in _DELTAS or data[start + 1] > _ONE_BYTE:
            return None
        names = names_in(data[key_start:key_end])
        if names is None:
            return None
        layout = _layout(front_end - position, delta_size, key_end - key_at)
        return cls(*names, data[position:front_end], data[key_at:key_end], layout, _DELTAS[delta_size])

    def read(
        self, data: bytes, position: int, limit: int, last_offset_delta: int
    ) -> tuple[dict[TopicPartition, OffsetCommitValue], int]:
        """The offsets of at most `limit` records up to the first with another layout, and the number of records."""
        _, topic, front, middle, layout, delta_of = self
        constant = _VALUE_LENGTH, _VALUE_VERSION, 0, 0
        offsets: dict[TopicPartition, OffsetCommitValue] = {}
        limit = min(limit, (len(data) - position) // layout.size)
        rows = layout.iter_unpack(data[position : position + limit * layout.size])
        count = commit_timestamp = 0
        for start, delta, key, partition, length, version, offset, epoch, metadata, timestamp, headers in rows:
            is_plain = start == front and key == middle and (length, version, metadata, headers) == constant
            if not is_plain or not 0 <= delta_of(delta) <= last_offset_delta:
                break
            if timestamp != commit_timestamp:  # one object for all timestamps of a commit
                commit_timestamp = timestamp
            offsets[topic, partition] = OffsetCommitValue(offset, epoch, "", commit_timestamp)
            count += 1
        return offsets, count


def _wide(delta: int) -> int:
    """The two bytes of an offset delta, as a number."""
    raw = delta << 1
    return (raw & 0x7F | 0x80) << 8 | raw >> 7


def _wide_delta(raw: int) -> int:
    """The offset delta whose two bytes are `raw`."""
    low, high = raw >> 8, raw & 0xFF
    return (low & 0x7F | high << 7) >> 1 if low & 0x81 == 0x80 and high < 0x80 else _INVALID


_NARROW_DELTAS: Final = tuple(raw >> 1 if not raw & 0x81 else _INVALID for raw in range(256))
_DELTAS: Final[Mapping[int, Callable[[int], int]]] = {1: _NARROW_DELTAS.__getitem__, 2: _wide_delta}
"""Reads an offset delta of one or two bytes. Holdfast never writes enough records in a batch for three."""


@lru_cache(64)
def _layout(front: int, delta: int, middle: int) -> Struct:
    """A record whose parts have these lengths."""
    return Struct(f">{front}s{'B' if delta == 1 else 'H'}{middle}s{_REST.format[1:]}")
