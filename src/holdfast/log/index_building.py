"""The indexes of a segment on disk: read, extended, or rebuilt from the log.

The log is authoritative. After a clean close its bytes are trusted, and the indexes only as far as the log confirms
them. After a crash, everything above the recovery point is checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.log import scan
from holdfast.log.errors import CorruptSegment
from holdfast.log.index import SegmentIndexes
from holdfast.log.segment_walk import SegmentBytes, walk_past_damage
from holdfast.wire.batch import BatchHeader

_logger = logging.getLogger(__name__)


class Indexed(NamedTuple):
    """The batches of a segment."""

    indexes: SegmentIndexes
    next_offset: int
    """The offset after the last one."""
    end: int
    """Where the last batch ends."""
    is_sound: bool = True
    """No damaged or missing batch was found before the end."""


def load(source: SegmentBytes, interval_bytes: int) -> Indexed:
    """Find the end of the log. Its bytes are trusted, as after a clean close or below the recovery point.

    The indexes are only trusted as far as the log confirms them. An index that ends early is extended.
    """
    indexes = SegmentIndexes.of_files(source.path, source.base_offset)
    wrong = _why_unfit(source, indexes)
    carried_on = _carry_on(source, indexes, interval_bytes) if wrong is None else None
    if carried_on is not None:
        return carried_on
    log_rebuild(source, wrong or "the time index names a timestamp that no batch has")
    return rebuild(source, interval_bytes)


def log_rebuild(source: SegmentBytes, reason: str) -> None:
    if source.size:
        fields = {"file": str(source.path), "reason": reason}
        _logger.warning("index built again from the log", extra={"fields": fields})


def rebuild(source: SegmentBytes, interval_bytes: int) -> Indexed:
    """Build both indexes from the headers alone."""
    indexes = SegmentIndexes.empty(source.path, source.base_offset)
    next_offset, end = source.base_offset, 0
    for position, header in _all_batches(source, 0):
        _index(indexes, position, header, interval_bytes)
        next_offset, end = header.last_offset + 1, position + header.size
    return Indexed(indexes, next_offset, end)


def recover(source: SegmentBytes, interval_bytes: int, recovery_point: int, may_have_gaps: bool) -> Indexed:
    """Find the end of the valid batches and index them.

    Everything below the recovery point was on disk, so damage there is not a torn tail, and the batches after it are
    kept. Only compaction leaves gaps.
    """
    position, next_offset, is_sound = 0, source.base_offset, True
    indexes = SegmentIndexes.empty(source.path, source.base_offset)
    before: tuple[int, BatchHeader] | None = None
    while position < source.size:
        for at, header in scan.sound_batches(
            source.file.opened(), next_offset, source.size, position, source.base_offset
        ):
            if header.base_offset > next_offset and not may_have_gaps:
                missing = f"no batch has offsets {next_offset} to {header.base_offset - 1}"
                _log_damage(source.corrupt(at, missing))
                is_sound = False
            if before is not None and before[1].leader_epoch > header.leader_epoch:
                # The CRC does not cover it. A reader finds out which of the two is damaged.
                reason = f"leader epoch {before[1].leader_epoch} before {header.leader_epoch}"
                _log_damage(source.corrupt(before[0], reason))
                is_sound = False
            before = at, header
            _index(indexes, at, header, interval_bytes)
            next_offset = header.last_offset + 1
            position = at + header.size
        if position == source.size or next_offset >= recovery_point:
            break
        again = scan.next_sound(source.file.opened(), position + 1, source.size, next_offset)
        if again == source.size:
            break
        _log_damage(source.corrupt(position, "no sound batch"))
        is_sound, position = False, again
    return Indexed(indexes, next_offset, position, is_sound)


def _all_batches(source: SegmentBytes, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """All batches from there on, including those after damaged bytes."""
    return walk_past_damage(source, (position, source.base_offset), _log_damage)


def _log_damage(error: CorruptSegment) -> None:
    fields = {"file": str(error.path), "position": error.position, "reason": error.reason}
    _logger.error("damaged segment", extra={"fields": fields})


def _carry_on(source: SegmentBytes, indexes: SegmentIndexes, interval_bytes: int) -> Indexed | None:
    """Add the batches that are not indexed yet. None if the time index is wrong."""
    next_offset = source.base_offset
    indexed = indexes.offset.last or (source.base_offset, 0)
    timed = indexes.time.last
    is_confirmed = timed is None
    end = first = _first_untimed(indexes, *indexed)
    for position, header in _all_batches(source, first):
        if timed is not None and header.base_offset <= timed[1] <= header.last_offset:
            is_confirmed = header.max_timestamp == timed[0]
        if position >= indexed[1]:
            _index(indexes, position, header, interval_bytes)
        else:
            indexes.add_timestamp(header.last_offset, header.max_timestamp)
        next_offset, end = header.last_offset + 1, position + header.size
    # Retention uses the largest timestamp. A wrong one could delete records too early, or keep them for ever.
    return Indexed(indexes, next_offset, end) if is_confirmed else None


def _why_unfit(source: SegmentBytes, indexes: SegmentIndexes) -> str | None:
    """None if both files exist and the last entry points at a batch."""
    if source.size == 0:
        return "nothing to read, and nothing to trust"
    if not (indexes.offset.is_whole_file() and indexes.time.is_whole_file()):
        return "a file is missing or torn"
    last = indexes.offset.last
    return None if last is None or source.has_batch(*last) else "the last entry names no batch"


def _first_untimed(indexes: SegmentIndexes, offset: int, position: int) -> int:
    """Where to continue with timestamps: at the end of the offset index, or of the time index if that is earlier."""
    timed = indexes.time.last
    if timed is None:
        return 0
    if timed[1] >= offset:
        return position
    below, _ = indexes.offset.around(timed[1])
    return below[1] if below else 0


def _index(indexes: SegmentIndexes, position: int, header: BatchHeader, interval_bytes: int) -> None:
    indexes.add(position, header.last_offset, header.max_timestamp, header.size, interval_bytes)
