"""The timeline as a picture: the parts of the figure, and the pixels of the PNG."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from holdfast.extras import MissingExtra
from holdfast.spark.pipelines.forensics.png_report import MAX_CAUSES, RED, figure, png
from holdfast.spark.pipelines.forensics.timeline import (
    MAX_CELLS,
    MAX_MARKS,
    MAX_PICTURE_ROWS,
    PALETTE,
    Colour,
    Drawing,
    Interval,
    Mark,
    Timeline,
)

START_MS = 1_790_000_000_000
"""2026-09-21 14:13:20 UTC."""


def moved(marks: Sequence[Mark] = ()) -> Drawing:
    """Given: a partition that moves from `a` to `b` after ten minutes, and one that stays with `c`."""
    intervals = [
        Interval("orders", 0, "a", START_MS, START_MS + 600_000),
        Interval("orders", 0, "b", START_MS + 600_000, START_MS + 1_200_000),
        Interval("orders", 1, "c", START_MS, None),
    ]
    return Timeline.of("the group", intervals, marks).drawing()


def artist(fig: Figure, gid: str) -> Any:
    (found,) = [one for one in fig.axes[0].collections if one.get_gid() == gid]
    return found


def texts(fig: Figure) -> list[str]:
    fig.canvas.draw()
    (axes,) = fig.axes
    shown = [*fig.texts, *axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label]
    return [text.get_text() for text in shown] + [text.get_text() for one in fig.legends for text in one.get_texts()]


def bytes_of(colours: Any) -> list[Colour]:
    return [tuple(round(part * 255) for part in colour[:3]) for colour in colours]


def pixels(picture: bytes) -> set[Colour]:
    image = (imread(io.BytesIO(picture))[:, :, :3] * 255).round().astype(int)
    return {tuple(colour) for colour in np.unique(image.reshape(-1, 3), axis=0).tolist()}


def test_a_row_shows_its_owners_in_their_colours_over_their_time() -> None:
    drawing = moved()
    fig = figure(drawing)

    bars = artist(fig, "owners of orders-0")

    assert bytes_of(bars.get_facecolors()) == [drawing.colours["a"], drawing.colours["b"]]
    begin, end = fig.axes[0].get_xlim()
    ends = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in bars.get_paths()]
    middle = (begin + end) / 2
    assert ends == [pytest.approx((begin, middle)), pytest.approx((middle, end))]


def test_the_picture_has_the_names_the_time_in_utc_and_the_numbers_of_the_members() -> None:
    shown = texts(figure(moved()))

    assert {"the group", "orders-0", "orders-1", "1 a", "2 b", "3 c"} <= set(shown)
    assert {"14:15", "14:20", "2026-09-21 14:13:20 to 2026-09-21 14:33:20 UTC"} <= set(shown)
    assert {"1", "2", "3"} <= set(shown), "in the cells"


def test_a_rebalance_is_a_red_line_with_its_cause_and_its_duration() -> None:
    at_ms = START_MS + 300_000
    fig, without = figure(moved([Mark(at_ms, "a new member joined: b", 60_000)])), figure(moved())

    lines, bands = artist(fig, "rebalances"), artist(fig, "without assignments")

    begin, end = fig.axes[0].get_xlim()
    assert lines.get_segments()[0][0][0] == pytest.approx(begin + (end - begin) / 4)
    assert bytes_of(lines.get_colors()) == [RED]
    assert bands.get_paths()[0].vertices[:, 0].max() == pytest.approx(begin + (end - begin) * 0.3)
    assert "1  14:18:20  a new member joined: b; no assignments for 60,000 ms" in texts(fig)
    assert artist(without, "rebalances").get_segments() == [], "the control"
    assert not [text for text in texts(without) if "assignments" in text], "the control"


def test_the_png_has_the_width_and_the_colours_of_the_members_and_rebalances() -> None:
    drawing = moved([Mark(START_MS + 300_000, "a new member joined")])

    picture, plain = png(drawing, width=800), png(moved(), width=800)

    assert imread(io.BytesIO(picture)).shape[1] == 800
    assert set(drawing.colours.values()) <= pixels(picture)
    assert RED in pixels(picture)
    assert RED not in pixels(plain), "the control"


def test_a_hundred_partitions_of_twenty_members_have_a_row_and_a_label_each() -> None:
    intervals = [Interval("orders", row, f"member-{row % 20}", 0, 60_000) for row in range(MAX_PICTURE_ROWS)]
    drawing = Timeline.of("g", intervals, max_rows=MAX_PICTURE_ROWS).drawing()

    fig = figure(drawing)

    fig.canvas.draw()
    labels = [label.get_window_extent() for label in fig.axes[0].get_yticklabels()]
    assert len(labels) == MAX_PICTURE_ROWS
    assert not [one for one, two in itertools.pairwise(labels) if one.overlaps(two)]
    assert min(label.x0 for label in labels) >= 0, "no name is cut"
    (legend,) = fig.legends
    assert len(legend.get_texts()) == 20
    assert fig.bbox.contains(*legend.get_window_extent().min), "the legend is in the picture"
    assert len(set(drawing.colours.values())) == 20


def test_a_long_history_says_what_is_left_out() -> None:
    timeline = Timeline("g", 0, 1_000_000, MAX_PICTURE_ROWS)
    for number in range(2 * MAX_CELLS):
        timeline.add(Interval("orders", 0, f"m{number % 50:02}", number * 4_000, (number + 1) * 4_000))
    for partition in range(1, 2 * MAX_PICTURE_ROWS):
        timeline.add(Interval("orders", partition, f"m{partition % 50:02}", 0, None))
    for number in range(2 * MAX_MARKS):
        timeline.add_mark(Mark(number * 2_000, "a member left", 10))
    drawing = timeline.drawing()

    fig = figure(drawing)

    shown = texts(fig)
    assert {*drawing.notes} <= {*shown}
    assert drawing.notes[0] == f"{MAX_PICTURE_ROWS} more partitions are not shown"
    assert drawing.notes[-1] == f"there are 50 members and {len(PALETTE)} colours: some members share a colour"
    assert "and 10 more members" in shown
    assert f"Rebalances (red), the {MAX_CAUSES} longest of {len(drawing.marks)}:" in shown
    lowest = min(text.get_window_extent().y0 for text in fig.texts)
    assert lowest >= 0, "the last note is in the picture"


@pytest.mark.filterwarnings("error")
def test_a_picture_of_nothing_and_of_a_name_that_cannot_be_drawn() -> None:
    assert png(Timeline.of("", []).drawing()).startswith(b"\x89PNG")
    strange = Timeline.of(
        "\ud800注" * 500, [Interval("\x00", 0, "ünïcode" * 50, 0, 10)], [Mark(5, "$\\frac{1}$\n", 3)]
    ).drawing()

    fig = figure(strange)

    assert png(strange).startswith(b"\x89PNG")
    assert "1  00:00:00  $\\frac{1}$?; no assignments for 3 ms" in texts(fig), "no markup"
    assert {"?-0", "??" * 59 + "?…"} <= set(texts(fig))


@pytest.mark.parametrize(
    ("from_ms", "to_ms"),
    [(-(2**53), 2**53), (-(2**53), -(2**53) + 5), (2**53 - 5, 2**53), (253_402_300_799_990, 2**53)],
)
def test_times_without_a_date_are_drawn_at_the_nearest(from_ms: int, to_ms: int) -> None:
    intervals = [Interval("t", 0, "a", from_ms, to_ms)]
    drawing = Timeline.of("g", intervals, [Mark(from_ms, "first", 5), Mark(to_ms, "last")]).drawing()

    assert png(drawing).startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.extras.find_spec", lambda _: None)

    with pytest.raises(MissingExtra, match=r"needs matplotlib: pip install 'holdfast\[plot\]'"):
        png(moved())


# -- colours -----------------------------------------------------------------------------------------------------------

_VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
"""What these eyes see of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)."""


def _oklab(linear: Any) -> Any:
    """Colours in a space in which distances are as seen (Ottosson 2020)."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.793617785, -0.0040720468],
            [1.9779984951, -2.428592205, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.808675766],
        ]
    )
    return np.cbrt(linear @ cones.T) @ lab.T


def smallest_distance(colours: Sequence[Colour], vision: str) -> float:
    srgb = np.array(colours) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = _oklab(np.clip(linear @ _VISION[vision].T, 0, 1))
    return min(float(np.linalg.norm(one - two)) for number, one in enumerate(seen) for two in seen[:number])


@pytest.mark.parametrize("vision", _VISION)
def test_members_have_different_colours_for_colour_blind_readers_too(vision: str) -> None:
    assert smallest_distance(PALETTE, vision) > 0.07
    assert smallest_distance(PALETTE[:8], vision) > 0.13
    # The control: red and green of equal lightness.
    assert (smallest_distance([(214, 80, 40), (110, 140, 40)], vision) > 0.1) == (vision == "normal")
