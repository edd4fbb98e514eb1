"""Lookup of offsets by timestamp in the segments of a log, for ListOffsets. Timestamps may be in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.log.segment import Segment
from holdfast.wire.batch import NO_TIMESTAMP
from holdfast.wire.records import decode_batch


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


NOWHERE = TimestampOffset(NO_TIMESTAMP, -1)


def latest(segments: Sequence[Segment]) -> TimestampOffset:
    """The largest timestamp and the first record that has it; (-1, -1) if there is none. Decodes one batch."""
    # Without segments, the log is closed because its topic is being deleted.
    segment = max(segments, key=lambda segment: segment.indexes.max_timestamp[0], default=None)
    if segment is None:
        return NOWHERE
    timestamp, last_offset = segment.indexes.max_timestamp
    found = next(segment.headers(last_offset), None) if timestamp != NO_TIMESTAMP else None
    if found is None:
        return NOWHERE
    position, header = found
    for record in decode_batch(segment.sound_batch_at(position, header)):
        if record.timestamp == timestamp:
            return TimestampOffset(timestamp, record.offset)
    return TimestampOffset(timestamp, header.last_offset)


def first_at(segments: Sequence[Segment], timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` on with at least this timestamp. Decodes one batch."""
    for segment in segments:
        if segment.indexes.max_timestamp[0] < timestamp:
            continue
        first = max(segment.offset_before(timestamp), start_offset)
        for position, header in segment.sound_headers(first):
            if header.max_timestamp < timestamp:
                continue
            for record in decode_batch(segment.sound_batch_at(position, header)):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset)
    return None
