"""The state of a log's idempotent producers, and the validation of their batches.

For each producer id, the state has its epoch and the last five batches. A duplicate batch is answered with the offset
of its first copy; a batch that leaves a gap is rejected. The rules are Kafka's (ProducerAppendInfo):

- the sequence follows the last one; 0 follows 2^31 - 1;
- a new epoch starts at sequence 0; an older epoch is fenced;
- any sequence of an unknown producer is accepted: its state may have expired, or its records may have been deleted, and
  it cannot start over.

The state is written to a `.snapshot` file, in Kafka's format, when a segment is rolled and when the log is closed. As
in Kafka, a snapshot has the last batch of each producer; later batches are read from the log.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from google_crc32c import value as crc32c

from holdfast.log.errors import (
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerError,
)
from holdfast.wire.batch import BatchHeader

_MAX_SEQUENCE = 2**31 - 1
_NO_SEQUENCE = -1
# Kafka's producers have at most five requests in flight.
_BATCHES_KEPT = 5

_SNAPSHOT_VERSION = 1
_SNAPSHOT_FRONT = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_NO_COORDINATOR_EPOCH = -1
_NO_TRANSACTION = -1


class CorruptSnapshot(Exception):
    """A snapshot file is unusable; the previous one, or none, is used instead."""


class StoredBatch(NamedTuple):
    """The position of a producer's batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Producer:
    __slots__ = ("batches", "epoch", "last_timestamp", "seen_ms")

    def __init__(self, epoch: int, last_timestamp: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.batches: deque[StoredBatch] = deque(maxlen=_BATCHES_KEPT)
        self.last_timestamp = last_timestamp
        # The time of its last batch by the broker's clock. Kafka uses the records' timestamps, so it expires a producer
        # of old records while it is still active.
        self.seen_ms = seen_ms

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE


class ActiveProducer(NamedTuple):
    """The description of a producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


class ProducerState:
    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def ids(self) -> tuple[int, ...]:
        return tuple(self._producers)

    def active(self, producer_ids: Iterable[int]) -> Iterator[ActiveProducer]:
        """The descriptions of all known producers."""
        for producer_id in producer_ids:
            producer = self._producers.get(producer_id)
            if producer is not None:
                yield ActiveProducer(producer_id, producer.epoch, producer.last_sequence, producer.last_timestamp)

    def check_all(self, headers: Iterable[BatchHeader]) -> StoredBatch | None:
        """Validate batches that are to be appended together. Returns the stored batch if they are a duplicate."""
        expected: dict[int, tuple[int, int]] = {}
        duplicates: list[StoredBatch] = []
        fresh = 0
        for header in headers:
            if header.producer_id < 0:
                fresh += 1
                continue
            duplicate = None
            if header.producer_id in expected:
                _check_follows(header, *expected[header.producer_id])
            else:
                duplicate = self._check(header)
            if duplicate is not None:
                duplicates.append(duplicate)
                continue
            fresh += 1
            expected[header.producer_id] = (header.producer_epoch, last_sequence(header))
        if duplicates and fresh:
            raise ProducerError(DUPLICATE_SEQUENCE_NUMBER, "some of the batches are stored already")
        return duplicates[0] if duplicates else None

    def _check(self, header: BatchHeader) -> StoredBatch | None:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch == producer.epoch:
            wanted = (header.base_sequence, last_sequence(header))
            for batch in producer.batches:
                if (batch.first_sequence, batch.last_sequence) == wanted:
                    return batch
        _check_follows(header, producer.epoch, producer.last_sequence)
        return None

    def update(self, header: BatchHeader, base_offset: int, timestamp: int, seen_ms: int) -> None:
        """Update the state from a batch that was appended or read from the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, timestamp, seen_ms)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = timestamp
        producer.seen_ms = seen_ms
        if not header.is_control:
            last_offset = base_offset + header.last_offset_delta
            sequences = (header.base_sequence, last_sequence(header))
            producer.batches.append(StoredBatch(*sequences, base_offset, last_offset, timestamp))

    def last_batches(self) -> frozenset[tuple[int, int]]:
        """Producer id and last offset of each producer's last batch."""
        producers = self._producers.items()
        return frozenset((key, producer.batches[-1].last_offset) for key, producer in producers if producer.batches)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove expired producers; returns how many."""
        silent = [
            producer_id
            for producer_id, producer in list(self._producers.items())
            if now_ms - producer.seen_ms >= expiration_ms
        ]
        for producer_id in silent:
            self._producers.pop(producer_id, None)
        return len(silent)

    def to_snapshot(self) -> bytes:
        entries = bytearray(_SNAPSHOT_COUNT.pack(len(self._producers)))
        for producer_id, producer in self._producers.items():
            last_sequence, last_offset, offset_delta = _NO_SEQUENCE, -1, 0
            if producer.batches:
                last = producer.batches[-1]
                last_sequence, last_offset = last.last_sequence, last.last_offset
                offset_delta = last.last_offset - last.first_offset
            entries += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                last_sequence,
                last_offset,
                offset_delta,
                producer.last_timestamp,
                _NO_COORDINATOR_EPOCH,
                _NO_TRANSACTION,
            )
        return _SNAPSHOT_FRONT.pack(_SNAPSHOT_VERSION, crc32c(bytes(entries))) + bytes(entries)

    @classmethod
    def from_snapshot(cls, data: bytes, seen_ms: int) -> ProducerState:
        if len(data) < _SNAPSHOT_FRONT.size + _SNAPSHOT_COUNT.size:
            raise CorruptSnapshot(f"only {len(data)} bytes")
        version, crc = _SNAPSHOT_FRONT.unpack_from(data)
        entries = data[_SNAPSHOT_FRONT.size :]
        if version != _SNAPSHOT_VERSION or crc32c(entries) != crc:
            raise CorruptSnapshot(f"version {version} or CRC is wrong")
        (count,) = _SNAPSHOT_COUNT.unpack_from(entries)
        if count * _SNAPSHOT_ENTRY.size != len(entries) - _SNAPSHOT_COUNT.size:
            raise CorruptSnapshot(f"{count} producers in {len(entries)} bytes")
        state = cls()
        for entry in _SNAPSHOT_ENTRY.iter_unpack(entries[_SNAPSHOT_COUNT.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp, _, _ = entry
            producer = state._producers[producer_id] = Producer(epoch, timestamp, seen_ms)
            if offset >= 0:
                first_sequence = _before(sequence, delta)
                producer.batches.append(StoredBatch(first_sequence, sequence, offset - delta, offset, timestamp))
        return state


def last_sequence(header: BatchHeader) -> int:
    """The sequence of a batch's last record; 0 follows 2^31 - 1."""
    return (header.base_sequence + header.last_offset_delta) & _MAX_SEQUENCE


def _before(sequence: int, steps: int) -> int:
    return (sequence - steps) & _MAX_SEQUENCE


def _check_follows(header: BatchHeader, epoch: int, sequence: int) -> None:
    who = f"producer {header.producer_id}"
    if header.producer_epoch < epoch:
        message = f"{who} has epoch {header.producer_epoch}, {epoch} was seen"
        raise ProducerError(INVALID_PRODUCER_EPOCH, message)
    if header.producer_epoch > epoch:
        if header.base_sequence != 0:
            message = f"{who} starts epoch {header.producer_epoch} with sequence {header.base_sequence}"
            raise ProducerError(OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        return
    wanted = (sequence + 1) & _MAX_SEQUENCE
    if header.base_sequence != wanted:
        message = f"{who} sent sequence {header.base_sequence} where {wanted} follows"
        raise ProducerError(OUT_OF_ORDER_SEQUENCE_NUMBER, message)
