"""The owners of partitions over time, reduced to a size that can be drawn."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from holdfast.coordinator.events.causes import CauseCode
from holdfast.spark.pipelines.forensics import html_report
from holdfast.spark.pipelines.forensics.html_report import section
from holdfast.spark.pipelines.forensics.timeline import (
    MAX_CELLS,
    MAX_MARKS,
    MAX_ROWS,
    Cell,
    Drawing,
    Interval,
    Mark,
    Timeline,
)

HOSTILE = "</title><script>alert(1)</script>\"'&\x00\x1b[2J\ud800"


def small() -> Drawing:
    """Given: two partitions, one of which moves in a rebalance."""
    intervals = [
        Interval("orders", 0, "a", 0, None),
        Interval("orders", 1, "a", 0, 4_000),
        Interval("orders", 1, "b", 5_000, 10_000),
    ]
    return Timeline.of("g", intervals, [Mark(4_000, "a new member joined", 1_000)]).drawing()


def test_a_short_history_is_drawn_as_it_was() -> None:
    drawing = small()

    assert (drawing.from_ms, drawing.to_ms) == (0, 10_000)
    assert drawing.rows == (
        ("orders-0", (Cell(0, 10_000, "a"),)),
        ("orders-1", (Cell(0, 4_000, "a"), Cell(5_000, 10_000, "b"))),
    )
    assert [*drawing.colours] == ["a", "b"]
    assert drawing.notes == ()


def test_a_long_one_is_as_large_and_says_what_it_leaves_out() -> None:
    timeline = Timeline("g", 0, 1_000_000)
    for number in range(20 * MAX_CELLS):
        timeline.add(Interval("orders", 0, f"m{number % 3}", number * 400, (number + 1) * 400))
    for partition in range(1, 3 * MAX_ROWS):
        timeline.add(Interval("orders", partition, "m0", 0, None))
    for number in range(10 * MAX_MARKS):
        timeline.add_mark(Mark(number * 400, "a member left" if number % 3 else "a new member joined", 10))

    drawing = timeline.drawing()

    assert len(drawing.rows) == MAX_ROWS
    assert all(len(cells) <= MAX_CELLS for _, cells in drawing.rows)
    assert drawing.rows[0][1][0].owners == 3
    assert len(drawing.marks) <= MAX_CELLS
    assert sum(mark.count for mark in drawing.marks) == 10 * MAX_MARKS
    assert sum(mark.unassigned_ms for mark in drawing.marks) == 10 * MAX_MARKS * 10
    assert drawing.notes[0] == f"{2 * MAX_ROWS} more partitions are not shown"
    assert "longest owner" in drawing.notes[1]
    assert len(section(drawing)) < 1_500_000


def test_the_longest_owner_of_a_span_is_shown() -> None:
    timeline = Timeline("g", 0, MAX_CELLS * 100)
    for number in range(MAX_CELLS):
        begin = number * 100
        timeline.add(Interval("t", 0, "short", begin, begin + 30))
        timeline.add(Interval("t", 0, "long", begin + 30, begin + 100))

    ((_, cells),) = timeline.drawing().rows

    assert cells == (Cell(0, MAX_CELLS * 100, "long", 2),)


def test_the_first_partitions_by_name_are_shown_in_whatever_order_they_come() -> None:
    for order in (1, -1):
        timeline = Timeline("g", 0, 100)
        for partition in [*range(2 * MAX_ROWS)][::order]:
            timeline.add(Interval("t", partition, "a", 0, 50))

        assert [name for name, _ in timeline.drawing().rows] == [f"t-{number}" for number in range(MAX_ROWS)]


class _Elements(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "line", "i"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_has_a_row_for_each_partition_and_a_line_for_each_rebalance() -> None:
    markup = html_report.page(
        "title", ["said"], [section(small(), [("rebalances", "1")], {CauseCode.MEMBER_JOINED: 1})]
    )

    found = _Elements(markup)

    rects = [attrs for tag, attrs in found.tags if tag == "rect" and "fill" in attrs]
    lines = [attrs for tag, attrs in found.tags if tag == "line" and attrs.get("class") == "m"]
    assert (len(rects), len(lines)) == (3, 1)
    assert len({rect["fill"] for rect in rects}) == 2, "a colour for each member"
    assert float(lines[0]["x1"] or 0) == pytest.approx(190 + 1000 * 0.4)
    assert any("a new member joined" in text and "1,000 ms" in text for text in found.texts)
    assert {"orders-0", "orders-1"} <= set(found.texts)
    assert found.open == [], "everything that was opened is closed"


def test_nothing_is_fetched_and_names_stay_text() -> None:
    drawing = Timeline.of(HOSTILE, [Interval(HOSTILE, 0, HOSTILE, 0, 10)], [Mark(5, HOSTILE)]).drawing()

    markup = html_report.page(HOSTILE, [HOSTILE], [section(drawing, [(HOSTILE, HOSTILE)], {HOSTILE: 1})])

    found = _Elements(markup)
    tags = {tag for tag, _ in found.tags}
    assert "script" not in tags
    assert not tags & {"img", "link", "iframe", "object", "a"}
    assert not [value for _, attrs in found.tags for name, value in attrs.items() if name in ("src", "href")]
    assert "alert(1)" in "".join(found.texts), "the control: the name is there, as text"
    assert "\x00" not in markup and "\x1b" not in markup
    assert markup.encode("utf-8").decode("utf-8") == markup
    assert "default-src 'none'" in markup
