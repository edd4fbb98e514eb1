"""Compaction keeps only the last record of each key (cleanup.policy=compact).

A pass reads the dirty part of the log, from where the last pass ended, and records the last offset of each key. Then it
rewrites the closed segments from the log's start on and keeps a record if no later one has its key. Offsets never
change, so a compacted log has gaps. Small adjacent segments become one.

Tombstones, records without a value, delete earlier records of their key. The first pass that keeps a tombstone writes
the delete horizon (KIP-534) into its batch: the time of the pass plus delete.retention.ms. A pass after that time drops
the tombstone. Segments are replaced in the order of their offsets, so the deleted records are removed from the disk
before their tombstone, also if the pass is killed or aborted. A deleted key therefore never reappears.

A batch that loses all its records is kept as a header in two cases. If it is the last batch of its producer, the
producer's state can be restored without a snapshot. If it is the last batch of a new segment, the segment keeps the end
offset of the old ones.

Compaction keeps an unreadable batch unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from google_crc32c import value as crc32c

from holdfast.log import scan
from holdfast.log.config import LogConfig
from holdfast.log.offset_map import OffsetMap
from holdfast.log.record_spans import RecordSpan, record_spans, unpack, with_records, without_records
from holdfast.log.repeated_keys import RepeatedKeys
from holdfast.log.segment import Segment
from holdfast.wire.batch import CRC_START, DELETE_HORIZON, BatchHeader, parse_header
from holdfast.wire.errors import WireError

_logger = logging.getLogger(__name__)

# An active segment of this size is worth a pass if it makes the log dirty enough. Kafka waits until it is full. A log
# with few keys, such as an internal topic, would then be read up to log.segment.bytes at each start.
WORTH_ROLLING_BYTES = 1024 * 1024
_WRITE_BYTES = 1024 * 1024
_WRITE_PIECES = 512

ProducerBatch = tuple[int, int]


class Compacted(NamedTuple):
    """The result of a pass. Segments and bytes are those that it read."""

    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    tombstones_dropped: int
    first_dirty_offset: int
    """Where the next pass begins. Below it, each key occurs at most once."""


class Stopped(Exception):
    """The pass was aborted because the log is being closed. Segments that it has replaced stay replaced."""


class Rewritten(NamedTuple):
    """How many segments became one, and whether the result differs from them."""

    segment_count: int
    is_changed: bool


class Dirt(NamedTuple):
    """The closed segments a pass may rewrite, and whether one is due."""

    segments: tuple[Segment, ...]
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    def is_due(self, config: LogConfig) -> bool:
        if self.dirty_bytes == 0:
            return False
        ratio = self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)
        return self.is_overdue or ratio > config.min_cleanable_dirty_ratio


def dirt(segments: Sequence[Segment], first_dirty_offset: int, config: LogConfig, now_ms: int) -> Dirt:
    """As in Kafka, ends before the first segment that is younger than min.compaction.lag.ms."""
    cleanable: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for segment in segments:
        latest = segment.indexes.max_timestamp[0]
        since = latest if latest >= 0 else segment.created_ms
        if config.min_compaction_lag_ms > 0 and since > now_ms - config.min_compaction_lag_ms:
            break
        cleanable.append(segment)
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            is_overdue = is_overdue or _age_ms(segment, now_ms) > config.max_compaction_lag_ms
    return Dirt(tuple(cleanable), clean_bytes, dirty_bytes, is_overdue)


def wants_roll(segments: Sequence[Segment], first_dirty_offset: int, config: LogConfig, now_ms: int) -> bool:
    """Whether the active segment should be closed so that it can be compacted.

    It is closed by age as in Kafka, but without waiting for an append. It is also closed if it is large and dirty
    enough for a pass.
    """
    active = segments[-1]
    if active.size == 0:
        return False
    if _open_ms(active, now_ms) > config.segment_ms or _age_ms(active, now_ms) > config.max_compaction_lag_ms:
        return True
    if active.size < min(WORTH_ROLLING_BYTES, config.segment_bytes):
        return False
    with_active = dirt(segments, first_dirty_offset, config, now_ms)
    return active in with_active.segments and with_active.is_due(config)


def _age_ms(segment: Segment, now_ms: int) -> int:
    first = segment.first_timestamp
    return now_ms - (first if first >= 0 else segment.created_ms)


def _open_ms(segment: Segment, now_ms: int) -> int:
    """The age of a segment.

    It is not measured by record timestamps, because a topic filled with old records would get a new segment with each
    check. For a segment from before the start, only the timestamps are known.
    """
    return _age_ms(segment, now_ms) if segment.was_found else now_ms - segment.created_ms


class Compaction:
    """One pass over a log's closed segments."""

    def __init__(
        self, config: LogConfig, now_ms: int, last_batches: Collection[ProducerBatch], stop: Callable[[], bool]
    ) -> None:
        """`last_batches`: producer id and last offset of each producer's last batch. `stop` is called often."""
        self._config = config
        self._now_ms = now_ms
        self._last_batches = last_batches
        self._stop = stop
        self._keys = OffsetMap(0, 0)
        self._repeated = RepeatedKeys()
        self.records_before = 0
        self.records_after = 0
        self.tombstones_dropped = 0

    # The keys

    def read_keys(self, segments: Sequence[Segment], first_dirty_offset: int) -> int:
        """Record the last offset of each key from `first_dirty_offset` on. Returns the offset up to which the memory
        sufficed."""
        keys = self._keys = OffsetMap(first_dirty_offset, max(1, self._config.compaction_memory_bytes))
        self._read_keys(keys, segments, first_dirty_offset)
        self._repeated.put_into(keys)
        return keys.end_offset

    def _read_keys(self, keys: OffsetMap, segments: Sequence[Segment], first_dirty_offset: int) -> None:
        for segment in segments:
            if segment.next_offset <= first_dirty_offset:
                continue
            for position, header, batch in scan.contents(segment.file.opened(), segment.size):
                self._check_stop()
                if header.last_offset < first_dirty_offset or header.is_control:
                    continue
                if keys.is_full:
                    return
                self._note_keys(segment, position, header, batch)
                keys.end_offset = header.last_offset + 1
            keys.end_offset = segment.next_offset

    def _note_keys(self, segment: Segment, position: int, header: BatchHeader, batch: bytes) -> None:
        try:
            _check_crc(header, batch)
            records = unpack(batch, header)
            layout = self._repeated.find(records, header)
            if layout is not None:
                layout.last_base_offset = header.base_offset
                return
            spans = record_spans(records, header)
        except WireError as error:
            _logger.warning("%s: compaction leaves the batch at byte %d as it is: %s", segment.path, position, error)
            return
        put, base_offset = self._keys.put, header.base_offset
        for span in spans:
            if span.key is not None:
                put(span.key, base_offset + span.offset_delta)
        self._repeated.add(records, header, spans)

    # Rewriting

    def covered(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments to rewrite: those that the recorded keys cover."""
        return [segment for segment in segments if segment.base_offset < self._keys.end_offset]

    def rewrite(self, segments: Sequence[Segment], into: Segment) -> Rewritten:
        """Write the kept records of the first segments, as many as fit in one."""
        count, is_changed = 0, False
        dropped: bytes | None = None
        for segment in segments:
            if count and not self._has_room(into, segment):
                break
            count += 1
            pieces: list[bytes] = []
            size = 0
            for _, header, batch in scan.contents(segment.file.opened(), segment.size):
                self._check_stop()
                kept = self._kept(header, batch)
                is_changed = is_changed or kept is not batch
                dropped = batch if kept is None else None
                if kept is not None:
                    pieces.append(kept)
                    size += len(kept)
                if size >= _WRITE_BYTES or len(pieces) >= _WRITE_PIECES:
                    _append(into, pieces)
                    pieces, size = [], 0
            _append(into, pieces)
        if dropped is not None:
            # The end of the batch is the end of the segment.
            header = parse_header(dropped)
            _append(into, [without_records(dropped, header) if header.record_count else dropped])
        into.finish()
        into.sync()
        return Rewritten(count, is_changed or count > 1)

    def _has_room(self, into: Segment, segment: Segment) -> bool:
        """Whether a whole segment fits into the new one even if none of its records is dropped."""
        span = segment.next_offset - 1 - into.base_offset
        return into.size + segment.size <= self._config.segment_bytes and span <= scan.MAX_RELATIVE_OFFSET

    def _kept(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """The kept part of a batch: all of it, some records, its header, or nothing."""
        if header.is_control or header.base_offset >= self._keys.end_offset:
            return batch
        try:
            _check_crc(header, batch)
            records = unpack(batch, header)
            layout = self._repeated.find(records, header)
            if layout is not None and layout.is_superseded(header.base_offset):
                self.records_before += header.record_count
                return self._without_records(header, batch)
            spans = record_spans(records, header)
        except WireError:
            return batch
        delete_horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        kept = self._last_of_their_key(header, spans, delete_horizon_ms)
        self.records_before += len(spans)
        self.records_after += len(kept)
        if not kept:
            return self._without_records(header, batch)
        if delete_horizon_ms is None and not all(span.has_value for span in kept):
            return with_records(batch, header, records, kept, self._now_ms + self._config.delete_retention_ms)
        return batch if len(kept) == len(spans) else with_records(batch, header, records, kept, None)

    def _without_records(self, header: BatchHeader, batch: bytes) -> bytes | None:
        if (header.producer_id, header.last_offset) not in self._last_batches:
            return None
        return without_records(batch, header) if header.record_count else batch

    def _last_of_their_key(
        self, header: BatchHeader, spans: Sequence[RecordSpan], delete_horizon_ms: int | None
    ) -> list[RecordSpan]:
        last_offset, base_offset = self._keys.last_offset, header.base_offset
        kept = [
            span for span in spans if span.key is not None and base_offset + span.offset_delta >= last_offset(span.key)
        ]
        if delete_horizon_ms is None or self._now_ms < delete_horizon_ms:
            return kept
        with_value = [span for span in kept if span.has_value]
        self.tombstones_dropped += len(kept) - len(with_value)
        return with_value

    def _check_stop(self) -> None:
        if self._stop():
            raise Stopped


def _append(segment: Segment, pieces: Sequence[bytes]) -> None:
    if not pieces:
        return
    segment.write(pieces)
    for piece in pieces:
        header = parse_header(piece)
        segment.add(header.base_offset, header.last_offset, header.max_timestamp, header.size)


def _check_crc(header: BatchHeader, batch: bytes) -> None:
    if crc32c(batch[CRC_START:]) != header.crc:
        raise WireError("its CRC does not match")
