"""Checks the size of the batches of a request, and assigns their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.log.config import LogConfig
from holdfast.log.errors import RecordListTooLarge, RecordTooLarge
from holdfast.wire.batch import Batch


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the topic's timestamp type is LogAppendTime
    log_start_offset: int
    duplicate: bool = False


class Placed(NamedTuple):
    """A batch and its position."""

    batch: Batch
    base_offset: int
    last_offset: int
    max_timestamp: int


def with_offsets(batches: Sequence[Batch], next_offset: int, append_time: int | None) -> list[Placed]:
    placed: list[Placed] = []
    for batch in batches:
        last_offset = next_offset + batch.header.last_offset_delta
        timestamp = batch.header.max_timestamp if append_time is None else append_time
        placed.append(Placed(batch, next_offset, last_offset, timestamp))
        next_offset = last_offset + 1
    return placed


def size_of(batches: Sequence[Batch], config: LogConfig) -> int:
    """The size of all batches. Raises if one of them or the total is too large."""
    total = 0
    for batch in batches:
        size = len(batch.data)
        if size > config.max_message_bytes:
            raise RecordTooLarge(f"a batch of {size} bytes is above max.message.bytes={config.max_message_bytes}")
        total += size
    if total > config.segment_bytes:
        raise RecordListTooLarge(f"{total} bytes do not fit in one segment of {config.segment_bytes}")
    return total
