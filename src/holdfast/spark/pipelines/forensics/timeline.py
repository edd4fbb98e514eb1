"""The owners of partitions over time, reduced to a readable size: a row for each partition, cells for owners.

The number of rows, cells and marks is limited for any length of history. A row with more cells is divided into spans of
equal length, each shown with its longest owner; `notes` say what was left out or combined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_ROWS: Final = 48
MAX_CELLS: Final = 120
"""Per row."""
MAX_MARKS: Final = 200
MAX_PICTURE_ROWS: Final = 100
"""More than on the page, where each cell is an element with a tooltip."""

Colour = tuple[int, int, int]
PALETTE: Final[tuple[Colour, ...]] = (
    (0, 114, 178),
    (230, 159, 0),
    (30, 210, 255),
    (135, 75, 0),
    (0, 165, 165),
    (0, 0, 255),
    (60, 150, 255),
    (30, 45, 165),
    (150, 240, 150),
    (180, 120, 0),
    (60, 90, 105),
    (135, 195, 150),
    (90, 120, 105),
    (255, 195, 0),
    (45, 105, 255),
    (0, 180, 225),
    (45, 165, 105),
    (210, 15, 195),
    (0, 90, 150),
    (255, 105, 195),
)
"""Each colour differs as much as possible from all before it, also for readers with deuteranopia or protanopia, and
from the red of the rebalances. The test of the palette has the distances."""


@dataclass(frozen=True, slots=True)
class Interval:
    topic: str
    partition: int
    member: str
    from_ms: int
    to_ms: int | None
    """None: still the owner."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A rebalance."""

    at_ms: int
    label: str
    unassigned_ms: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    from_ms: int
    to_ms: int
    member: str
    owners: int = 1
    """The number of owners in this span; `member` was the longest."""


@dataclass(frozen=True, slots=True)
class Drawing:
    title: str
    from_ms: int
    to_ms: int
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """The partition's name, and its owners."""
    marks: tuple[Mark, ...]
    colours: dict[str, Colour]
    """The colours of the members, in the order of their names."""
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Row:
    exact: list[Interval] | None = field(default_factory=list)
    spans: dict[int, Counter[str]] = field(default_factory=dict)


class Timeline:
    def __init__(self, title: str, from_ms: int, to_ms: int, max_rows: int = MAX_ROWS) -> None:
        self._title = title
        self._max_rows = max_rows
        self._from_ms = from_ms
        self._to_ms = max(to_ms, from_ms + 1)
        self._rows: dict[tuple[str, int], _Row] = {}
        self._hidden: set[tuple[str, int]] = set()
        self._exact_marks: list[Mark] | None = []
        self._mark_spans: dict[int, Counter[str]] = {}
        self._unassigned: Counter[int] = Counter()

    @classmethod
    def of(
        cls, title: str, intervals: Iterable[Interval], marks: Iterable[Mark] = (), max_rows: int = MAX_ROWS
    ) -> Timeline:
        """From the first interval or mark to the last."""
        all_intervals, all_marks = [*intervals], [*marks]
        times = [time for one in all_intervals for time in (one.from_ms, one.to_ms or one.from_ms)]
        times += [time for mark in all_marks for time in (mark.at_ms, mark.at_ms + mark.unassigned_ms)]
        made = cls(title, min(times, default=0), max(times, default=1), max_rows)
        for interval in all_intervals:
            made.add(interval)
        for mark in all_marks:
            made.add_mark(mark)
        return made

    def add(self, interval: Interval) -> None:
        key = (interval.topic, interval.partition)
        begin = max(interval.from_ms, self._from_ms)
        end = self._to_ms if interval.to_ms is None else min(interval.to_ms, self._to_ms)
        if end <= begin and interval.to_ms is not None and interval.to_ms < self._from_ms:
            return
        row = self._rows.get(key)
        if row is None:
            if key in self._hidden or not self._has_room_for(key):
                self._hide(key)
                return
            row = self._rows[key] = _Row()
        clipped = Interval(*key, interval.member, begin, max(begin, end))
        if row.exact is None:
            self._into_spans(row, clipped)
        else:
            row.exact.append(clipped)
            if len(row.exact) > MAX_CELLS:
                for one in row.exact:
                    self._into_spans(row, one)
                row.exact = None

    def _has_room_for(self, key: tuple[str, int]) -> bool:
        """The first partitions by name are shown, in any order of arrival."""
        if len(self._rows) < self._max_rows:
            return True
        last = max(self._rows)
        if key > last:
            return False
        del self._rows[last]
        self._hide(last)
        return True

    def _hide(self, key: tuple[str, int]) -> None:
        if len(self._hidden) < 100_000:  # only their number is shown
            self._hidden.add(key)

    def _into_spans(self, row: _Row, one: Interval) -> None:
        assert one.to_ms is not None
        for span in range(self._span(one.from_ms), self._span(max(one.from_ms, one.to_ms - 1)) + 1):
            begin, end = self._bounds(span)
            together_ms = min(end, one.to_ms) - max(begin, one.from_ms)
            row.spans.setdefault(span, Counter())[one.member] += max(1, together_ms)

    def _span(self, at_ms: int) -> int:
        return min(MAX_CELLS - 1, (at_ms - self._from_ms) * MAX_CELLS // (self._to_ms - self._from_ms))

    def _bounds(self, span: int) -> tuple[int, int]:
        length = self._to_ms - self._from_ms
        return self._from_ms + span * length // MAX_CELLS, self._from_ms + (span + 1) * length // MAX_CELLS

    def add_mark(self, mark: Mark) -> None:
        if self._exact_marks is not None:
            self._exact_marks.append(mark)
            if len(self._exact_marks) > MAX_MARKS:
                for one in self._exact_marks:
                    self._mark_into_spans(one)
                self._exact_marks = None
        else:
            self._mark_into_spans(mark)

    def _mark_into_spans(self, mark: Mark) -> None:
        span = self._span(min(max(mark.at_ms, self._from_ms), self._to_ms))
        self._mark_spans.setdefault(span, Counter())[mark.label] += mark.count
        self._unassigned[span] += mark.unassigned_ms

    # -- the drawing ---------------------------------------------------------------------------------------------------

    def drawing(self) -> Drawing:
        rows = tuple((f"{key[0]}-{key[1]}", self._cells(row)) for key, row in sorted(self._rows.items()))
        members = sorted({cell.member for _, cells in rows for cell in cells})
        thinned = sum(row.exact is None for row in self._rows.values())
        notes = []
        if self._hidden:
            notes.append(f"{len(self._hidden):,} more partitions are not shown")
        if thinned:
            notes.append(
                f"in {thinned:,} rows, {MAX_CELLS} spans of equal length show their longest owner, because there "
                "were more changes than can be drawn"
            )
        if self._exact_marks is None:
            notes.append("rebalances that are close together are one line")
        if len(members) > len(PALETTE):
            notes.append(f"there are {len(members):,} members and {len(PALETTE)} colours: some members share a colour")
        return Drawing(self._title, self._from_ms, self._to_ms, rows, self._marks(), colours_of(members), tuple(notes))

    def _cells(self, row: _Row) -> tuple[Cell, ...]:
        if row.exact is not None:
            ordered = sorted(row.exact, key=lambda one: (one.from_ms, one.member))
            return tuple(Cell(one.from_ms, one.to_ms or one.from_ms, one.member) for one in ordered)
        cells: list[Cell] = []
        for span, owners in sorted(row.spans.items()):
            begin, end = self._bounds(span)
            member = max(owners, key=lambda name: (owners[name], name))
            if cells and cells[-1].to_ms == begin and cells[-1].member == member and cells[-1].owners == len(owners):
                cells[-1] = Cell(cells[-1].from_ms, end, member, len(owners))
            else:
                cells.append(Cell(begin, end, member, len(owners)))
        return tuple(cells)

    def _marks(self) -> tuple[Mark, ...]:
        if self._exact_marks is not None:
            return tuple(sorted(self._exact_marks, key=lambda mark: mark.at_ms))
        found = []
        for span, labels in sorted(self._mark_spans.items()):
            (label, most), *_ = labels.most_common(1)
            count = sum(labels.values())
            shown = label if most == count else f"{label} ({most} of them)"
            found.append(Mark(self._bounds(span)[0], shown, self._unassigned[span], count))
        return tuple(found)


def colours_of(members: Iterable[str]) -> dict[str, Colour]:
    return {member: PALETTE[number % len(PALETTE)] for number, member in enumerate(members)}
