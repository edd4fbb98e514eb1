"""Iterates over the headers of the batches of a segment file, and skips damaged bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.log import scan
from holdfast.log.errors import CorruptSegment
from holdfast.log.segment_file import SegmentFile
from holdfast.wire.batch import BatchHeader

Position = tuple[int, int]
"""The position of a batch in the file, and its first offset if known."""


class SegmentBytes(NamedTuple):
    """A segment's file as it is now."""

    path: Path
    """Of the log. The file may still have a suffix behind that name."""
    file: SegmentFile
    base_offset: int
    size: int

    def corrupt(self, position: int, reason: str) -> CorruptSegment:
        return CorruptSegment(self.file.path, position, reason)

    def has_batch(self, last_offset: int, position: int) -> bool:
        """Whether a batch with that last offset begins at that position."""
        hit = scan.header_at(self.file.opened(), position, self.size)
        return hit is not None and hit.last_offset == last_offset


def walk(source: SegmentBytes, first: Position) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of all batches from `first` on; `CorruptSegment` at an unreadable one."""
    position, offset = first
    try:
        yield from scan.in_order(scan.headers(source.file.opened(), position, source.size), offset, source.base_offset)
    except scan.Damage as damage:
        raise source.corrupt(damage.position, damage.reason) from None


def walk_past_damage(
    source: SegmentBytes, first: Position, on_damage: Callable[[CorruptSegment], None]
) -> Iterator[tuple[int, BatchHeader]]:
    """As :func:`walk`, but damaged bytes are reported to `on_damage` and skipped."""
    position, offset = first
    while position < source.size:
        try:
            for at, header in scan.in_order(
                scan.headers(source.file.opened(), position, source.size), offset, source.base_offset
            ):
                yield at, header
                position, offset = at + header.size, header.last_offset + 1
        except scan.Damage as damage:
            on_damage(source.corrupt(damage.position, damage.reason))
            position = scan.next_sound(source.file.opened(), damage.position + 1, source.size, offset)
