"""The appends to a partition of the group log that wait, joined into batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from google_crc32c import value as crc32c

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.broker.groups.record_batches import encode_group_records
from holdfast.gateway.state.producer import Producer
from holdfast.wire.batch import CRC_START, HEADER_SIZE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupRecord
from holdfast.wire.records import batch_of

SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap around after the highest int32 (KIP-98)."""

_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17


@dataclass(frozen=True, slots=True)
class WriterLimits:
    in_flight: int = 1
    """Batches without an answer, at most five: Kafka remembers so many of a producer. A broker processes requests of
    a connection one by one, so more batches in flight are only smaller. With one, a loaded partition stores two to four
    times as many commits as with five. And the snapshot from which a restarted broker starts has only one."""
    batch_records: int = 500
    batch_bytes: int = 512 * 1024
    waiting_records: int = 100_000
    waiting_bytes: int = 64 * 1024 * 1024
    stored_within_s: float = 60.0
    """If nothing was stored for so long, appends that were never sent fail."""
    produce_timeout_s: float = 30.0
    heartbeat_s: float = 3_600.0
    """An idle partition gets a claim this often: `producer.id.expiration.ms`, after which the leader would forget the
    epoch, is a day by default."""
    renewal_s: float = 86_400.0
    """Before `transactional.id.expiration.ms`, a week by default, after which the next writer would get another
    producer id."""


class AppendBatch:
    """Takes appends until it is sealed. From then on its bytes do not change, however often they are sent."""

    __slots__ = (
        "_records",
        "count",
        "created_s",
        "data",
        "is_claim",
        "is_stored",
        "offset",
        "sends",
        "sequence",
        "size",
        "timestamp_ms",
        "waiters",
    )

    def __init__(self, timestamp_ms: int, created_s: float, *, is_claim: bool = False) -> None:
        self.timestamp_ms = timestamp_ms
        """Of all its records."""
        self.created_s = created_s
        self.is_claim = is_claim
        self.count = 0
        self.size = HEADER_SIZE
        self.waiters: list[asyncio.Future[None]] = []
        self.data = b""
        self.sequence = -1
        self.sends = 0
        self.is_stored = False
        self.offset = -1
        """Of its first record, if it is known."""
        self._records: list[bytes] = []

    def add(self, records: bytes, count: int, waiter: asyncio.Future[None] | None) -> None:
        """All of them or none: an append is never divided between batches."""
        self._records.append(records)
        self.count += count
        self.size += len(records)
        if waiter is not None:
            self.waiters.append(waiter)

    def seal(self, producer: Producer, sequence: int) -> None:
        """Gives the batch its sequence number. A batch that is certainly not stored may be given another one."""
        self.sequence = sequence
        self.sends = 0
        self.data = idempotent_batch(b"".join(self._records), self.count, self.timestamp_ms, producer, sequence)

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % SEQUENCES

    def succeed(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: GroupLogError) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                # One for each: a traceback is added to it wherever it is raised.
                waiter.set_exception(GroupLogError(error.code, str(error)))


class AppendQueue:
    """The batches that were not sent yet. The last one takes further appends until it is full."""

    def __init__(self, partition: str, max_message_bytes: int, limits: WriterLimits) -> None:
        self._partition = partition
        self._max_message_bytes = max_message_bytes
        self._limits = limits
        self._batches: deque[AppendBatch] = deque()
        self._records = self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, records: Sequence[GroupRecord], now_ms: int, stored: asyncio.Future[None]) -> None:
        """Raises GroupLogError."""
        count = len(records)
        if self._records + count > self._limits.waiting_records or self._bytes > self._limits.waiting_bytes:
            raise self._not_available(f"{self._records} records wait already")
        try:
            batch = self._batches[-1] if self._batches else None
            data = None if batch is None else self._encoded_into(batch, records)
            if batch is None or data is None:
                data = encode_group_records(records, now_ms, 0)
                batch = None
        except WireError as error:  # a record that the format cannot hold
            raise GroupLogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if batch is None:
            self._check_size(HEADER_SIZE + len(data))
            batch = AppendBatch(now_ms, asyncio.get_running_loop().time())
            self._batches.append(batch)
        batch.add(data, count, stored)
        self._count(batch.is_claim, count, len(data))

    def _encoded_into(self, batch: AppendBatch, records: Sequence[GroupRecord]) -> bytes | None:
        """None if the batch has no room for them."""
        if batch.is_claim or batch.count + len(records) > self._limits.batch_records:
            return None
        data = encode_group_records(records, batch.timestamp_ms, batch.count)
        has_room = batch.size + len(data) <= min(self._limits.batch_bytes, self._max_message_bytes)
        return data if has_room else None

    def _check_size(self, size: int) -> None:
        if size > self._max_message_bytes:
            raise GroupLogError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"group records of {size} bytes exceed {self._max_message_bytes}, max.message.bytes of the topic of "
                f"partition {self._partition}",
            )

    def put_first(self, claim: AppendBatch) -> None:
        self._batches.appendleft(claim)

    def pop(self) -> AppendBatch:
        batch = self._batches.popleft()
        self._count(batch.is_claim, -batch.count, HEADER_SIZE - batch.size)
        return batch

    def fail_older(self, created_until_s: float, reason: str) -> None:
        """Claims stay. They are written as soon as the partition can be written to."""
        stalled = [batch for batch in self._batches if batch.created_s <= created_until_s and not batch.is_claim]
        error = self._not_available(f"nothing was stored for {self._limits.stored_within_s:g} s: {reason}")
        for batch in stalled:
            self._batches.remove(batch)
            self._count(batch.is_claim, -batch.count, HEADER_SIZE - batch.size)
            batch.fail(error)

    def clear(self) -> list[AppendBatch]:
        batches = list(self._batches)
        self._batches.clear()
        self._records = self._bytes = 0
        return batches

    def _count(self, is_claim: bool, records: int, size: int) -> None:
        if not is_claim:
            self._records += records
            self._bytes += size

    def _not_available(self, message: str) -> GroupLogError:
        return GroupLogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"partition {self._partition}: {message}")


def idempotent_batch(records: bytes, count: int, timestamp_ms: int, producer: Producer, sequence: int) -> bytes:
    """A batch of an idempotent producer, without the bit of a transaction."""
    data = bytearray(batch_of(records, count, timestamp_ms).data)
    _PRODUCER.pack_into(data, _PRODUCER_AT, *producer, sequence)
    _CRC.pack_into(data, _CRC_AT, crc32c(bytes(data[CRC_START:])))
    return bytes(data)
