"""Recognizes batches with the same keys as an earlier batch, for compaction.

A consumer commits the same partitions again and again, so most batches of `__consumer_offsets` differ only in the
values of their records. One call of struct extracts all other bytes of the records. If they equal those of an earlier
batch, the keys are known, and the records need not be decoded, which would take several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.log.offset_map import OffsetMap
from holdfast.log.record_spans import RecordSpan, value_span
from holdfast.wire.batch import BatchHeader

MIN_RECORDS: Final = 4
"""Decoding fewer records takes no longer."""
MAX_RECORDS: Final = 1_000
MAX_LAYOUTS: Final = 1_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""The maximum of the records in all layouts together."""

_Sizes = tuple[int, int, int]
"""The bytes of the records, their number, and the last offset delta."""


class Layout:
    """The keys that a number of batches have in common."""

    __slots__ = ("_keys", "_superseded_below", "last_base_offset")

    def __init__(self, spans: Sequence[RecordSpan], base_offset: int) -> None:
        self._keys = [(span.offset_delta, span.key) for span in spans if span.key is not None]
        self._superseded_below = -1
        self.last_base_offset = base_offset
        """The base offset of the last batch."""

    def is_superseded(self, base_offset: int) -> bool:
        """Whether later records have all keys of the batch at this offset."""
        return base_offset < self._superseded_below

    def put_into(self, keys: OffsetMap) -> None:
        for offset_delta, key in self._keys:
            keys.put(key, self.last_base_offset + offset_delta)

    def compare_with(self, keys: OffsetMap) -> None:
        first_kept = [keys.last_offset(key) - offset_delta for offset_delta, key in self._keys]
        self._superseded_below = min(first_kept, default=-1)


class _Shape(NamedTuple):
    """Batches of the same sizes, whose values are at the same positions."""

    struct: Struct
    layouts: dict[tuple[bytes, ...], Layout]
    """By the bytes that the struct extracts. They include all lengths, so equal bytes mean equal records."""


class RepeatedKeys:
    """The layouts that one compaction has found."""

    def __init__(self) -> None:
        self._shapes: dict[_Sizes, _Shape] = {}
        self._layouts: list[Layout] = []
        self._decoded: set[tuple[_Sizes, int]] = set()
        """The sizes and the hash of the first key of batches. If they occur again, a layout is worth its cost."""
        self._room_bytes = MAX_BYTES

    def find(self, records: bytes, header: BatchHeader) -> Layout | None:
        """The layout of a batch, or None if its records must be decoded."""
        shape = self._shapes.get(_sizes(records, header))
        return None if shape is None else shape.layouts.get(shape.struct.unpack(records))

    def add(self, records: bytes, header: BatchHeader, spans: Sequence[RecordSpan]) -> None:
        """Consider a batch whose records were decoded."""
        if not MIN_RECORDS <= len(spans) <= MAX_RECORDS or len(self._layouts) >= MAX_LAYOUTS:
            return
        sizes = _sizes(records, header)
        seen = sizes, hash(spans[0].key)
        if seen not in self._decoded:
            if len(self._decoded) >= MAX_LAYOUTS:
                self._decoded.clear()
            self._decoded.add(seen)
            return
        # Whether another timestamp is valid depends on the header.
        if len(records) > self._room_bytes or any(span.timestamp_delta for span in spans):
            return
        self._room_bytes -= len(records)
        struct = _without_values(records, spans)
        shape = self._shapes.get(sizes)
        if shape is None or shape.struct.format != struct.format:
            # A layout of the previous struct must not be compared with bytes from other positions.
            shape = self._shapes[sizes] = _Shape(struct, {})
        layout = shape.layouts[struct.unpack(records)] = Layout(spans, header.base_offset)
        self._layouts.append(layout)

    def put_into(self, keys: OffsetMap) -> None:
        """Add the last offsets of the layouts' keys, after all batches were read."""
        for layout in self._layouts:
            layout.put_into(keys)
        for layout in self._layouts:
            layout.compare_with(keys)


def _sizes(records: bytes, header: BatchHeader) -> _Sizes:
    return len(records), header.record_count, header.last_offset_delta


def _without_values(records: bytes, spans: Sequence[RecordSpan]) -> Struct:
    """Extracts all bytes of the records except for the values, which it skips."""
    parts = []
    for span in spans:
        start, end = value_span(records, span)
        parts.append(f"{start - span.start}s{end - start}x{span.end - end}s")
    return Struct("".join(parts))
