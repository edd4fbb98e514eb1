"""The timeline of a group as a PNG. It needs matplotlib, from the extra `plot`, and starts no Spark.

drawing = Timeline.of("orders", intervals, marks).drawing()
Path("owners.png").write_bytes(png(drawing))

The figure is drawn without pyplot, which keeps figures in global state. Names come from clients: they are shown as they
are, without matplotlib's markup.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.extras import PLOT, check_installed
from holdfast.spark.pipelines.forensics.records import clamp_to_dates
from holdfast.spark.pipelines.forensics.timeline import Colour, Drawing, Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED: Final[Colour] = (214, 40, 40)
MAX_CAUSES: Final = 20
"""Rebalances whose causes are written under the picture: those with the longest time without assignments."""
_INK: Final[Colour] = (40, 40, 40)
_PALE: Final[Colour] = (235, 235, 235)
_DPI: Final = 100
_MARGIN: Final = 14
_RIGHT: Final = 30
_LINE: Final = 17
_TOP: Final = 52
_AXIS: Final = 48
_LARGE_ROW, _SMALL_ROW, _MANY_ROWS = 18, 12, 60
_POINTS: Final = 8.0
_MAX_NAME_LENGTH: Final = 40
_MAX_TITLE_LENGTH: Final = 120
_MAX_LINE_LENGTH: Final = 200
_MAX_IN_LEGEND: Final = 40
_FONT: Final = "DejaVu Sans"
"""It is part of matplotlib."""
_COMBINED: Final = 0.55
"""Opacity of a span that had several owners, as on the page."""
_NUMBER_LEVELS: Final = 3
_NUMBER_ROOM: Final = 16
_TEXT_ROOM: Final = 22
"""Pixels that a number needs above the plot, and in a cell."""
_TICK_FORMATS: Final = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"]
"""Of ticks that are years, months, days, hours, minutes and seconds; matplotlib removes zeros at their end."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9998, 12, 31, tzinfo=UTC)
"""Records may have any timestamp. matplotlib needs room for a tick before and after the first and the last date."""


def png(drawing: Drawing, *, width: int = 1600) -> bytes:
    """The picture, `width` pixels wide; its height depends on the number of partitions and members."""
    out = io.BytesIO()
    figure(drawing, width=width).savefig(out, format="png", dpi=_DPI)
    return out.getvalue()


def figure(drawing: Drawing, *, width: int = 1600) -> Figure:
    """Rows are partitions, colours members, red lines rebalances; pale red is their duration."""
    check_installed("a picture of the timeline", PLOT)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [_short(name) for name, _ in drawing.rows]
    fig = Figure(dpi=_DPI, facecolor="white")
    canvas = FigureCanvasAgg(fig)
    left = _MARGIN + _widest(canvas, names) + 8
    room = max(100, width - left - _RIGHT)
    rows_height = max(1, len(names)) * (_LARGE_ROW if len(names) <= _MANY_ROWS else _SMALL_ROW)
    causes, texts = _causes(drawing), _texts(drawing)
    members = _members(drawing)
    columns = max(1, (width - 2 * _MARGIN) // (_widest(canvas, members) + 44))
    legend_height = -(-len(members) // columns) * _LINE
    height = _TOP + rows_height + _AXIS + legend_height + len(texts) * _LINE + 2 * _MARGIN
    fig.set_size_inches(width / _DPI, height / _DPI)

    bottom = height - _TOP - rows_height
    axes = fig.add_axes((left / width, bottom / height, room / width, rows_height / height))
    _rows(axes, drawing, names, room)
    _marks(axes, drawing, causes, room)
    _time_axis(axes, drawing)
    _write(fig, _short(drawing.title, _MAX_TITLE_LENGTH), _MARGIN / width, 1 - _MARGIN / height, size=12)
    _legend(fig, drawing, members, columns, (_MARGIN / width, (bottom - _AXIS) / height))
    for number, line in enumerate(texts):
        top = bottom - _AXIS - legend_height - _MARGIN - number * _LINE
        _write(fig, line, _MARGIN / width, top / height)
    return fig


def _rows(axes: Axes, drawing: Drawing, names: Sequence[str], room: int) -> None:
    begin, end = _dates(drawing)
    thinnest, numbers = (end - begin) / room, {name: number for number, name in enumerate(drawing.colours, 1)}
    for row, (_, cells) in enumerate(drawing.rows):
        axes.broken_barh([(begin, end - begin)], (row - 0.42, 0.84), facecolors=_rgb(_PALE), linewidth=0)
        spans = [(_date(cell.from_ms), max(thinnest, _date(cell.to_ms) - _date(cell.from_ms))) for cell in cells]
        colours = [(*_rgb(drawing.colours[cell.member]), 1.0 if cell.owners == 1 else _COMBINED) for cell in cells]
        bars = axes.broken_barh(spans, (row - 0.42, 0.84), facecolors=colours, linewidth=0)
        bars.set_gid(f"owners of {names[row]}")
        for cell, (left, length) in zip(cells, spans, strict=True):
            if length >= _TEXT_ROOM * thinnest:
                # Colours alone do not tell twenty members apart: the legend has the same numbers.
                light = sum(drawing.colours[cell.member]) > 380
                number = str(numbers[cell.member])
                style: dict[str, Any] = {"color": "black" if light else "white", "fontsize": 6.5, "clip_on": True}
                axes.text(left + 4 * thinnest, row, number, va="center_baseline", **style)
    axes.set_xlim(begin, end)
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, **_font())
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.spines[["top", "left", "right"]].set_visible(False)


def _marks(axes: Axes, drawing: Drawing, causes: Sequence[Mark], room: int) -> None:
    begin, end = _dates(drawing)
    low, high = axes.get_ylim()
    bands = [
        (_date(mark.at_ms), _date(mark.at_ms + mark.unassigned_ms) - _date(mark.at_ms))
        for mark in drawing.marks
        if mark.count == 1
    ]
    axes.broken_barh(bands, (high, low - high), facecolors=(*_rgb(RED), 0.2), linewidth=0).set_gid(
        "without assignments"
    )
    at = [_date(mark.at_ms) for mark in drawing.marks]
    # The white edge separates the line from a cell of a similar brightness.
    axes.vlines(at, low, high, colors="white", linewidth=2.2, alpha=0.6)
    axes.vlines(at, low, high, colors=[_rgb(RED)], linewidth=1).set_gid("rebalances")
    taken = [-float(_NUMBER_ROOM)] * _NUMBER_LEVELS
    for number, mark in enumerate(causes, 1):
        place = (_date(mark.at_ms) - begin) / (end - begin) * room
        level = next((one for one, last in enumerate(taken) if place - last >= _NUMBER_ROOM), taken.index(min(taken)))
        taken[level] = place
        axes.annotate(
            str(number),
            (_date(mark.at_ms), high),
            xytext=(0, 2 + 8 * level),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
            color=_rgb(RED),
            annotation_clip=False,
        )


def _time_axis(axes: Axes, drawing: Drawing) -> None:
    dates = _matplotlib_dates()
    locator = dates.AutoDateLocator(tz=UTC, minticks=4, maxticks=10)
    axes.xaxis.set_major_locator(locator)
    formatter = dates.ConciseDateFormatter(locator, tz=UTC, formats=_TICK_FORMATS, show_offset=False)
    axes.xaxis.set_major_formatter(formatter)
    axes.tick_params(axis="x", labelsize=_POINTS, labelcolor=_rgb(_INK))
    first, last = (f"{_moment(at):%Y-%m-%d %H:%M:%S}" for at in (drawing.from_ms, drawing.to_ms))
    axes.set_xlabel(f"{first} to {last} UTC", loc="left", **_font())


def _legend(fig: Figure, drawing: Drawing, members: Sequence[str], columns: int, place: tuple[float, float]) -> None:
    from matplotlib.patches import Patch

    if not members:
        return
    colours = [_rgb(colour) for colour in drawing.colours.values()][: len(members)]
    handles = [Patch(facecolor=colour, label=name) for colour, name in zip(colours, members, strict=True)]
    style: dict[str, Any] = {"fontsize": _POINTS, "frameon": False, "borderpad": 0, "borderaxespad": 0}
    legend = fig.legend(
        handles=handles,
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=place,
        handlelength=1.2,
        columnspacing=1.5,
        labelspacing=0.5,
        **style,
    )
    for text in legend.get_texts():
        text.set(parse_math=False, family=_FONT)


def _members(drawing: Drawing) -> list[str]:
    shown = [f"{number} {_short(name)}" for number, name in enumerate(drawing.colours, 1)]
    return shown[:_MAX_IN_LEGEND]


def _causes(drawing: Drawing) -> list[Mark]:
    """In the order of time."""
    longest = sorted(drawing.marks, key=lambda mark: mark.unassigned_ms, reverse=True)[:MAX_CAUSES]
    return sorted(longest, key=lambda mark: mark.at_ms)


def _texts(drawing: Drawing) -> list[str]:
    lines = []
    more = len(drawing.colours) - _MAX_IN_LEGEND
    if more > 0:
        lines.append(f"and {more:,} more members")
    causes = _causes(drawing)
    if causes:
        which = "" if len(causes) == len(drawing.marks) else f", the {len(causes)} longest of {len(drawing.marks):,}"
        lines.append(f"Rebalances (red){which}:")
    for number, mark in enumerate(causes, 1):
        many = "" if mark.count == 1 else f"{mark.count:,} rebalances, mostly: "
        without = f"no assignments for {mark.unassigned_ms:,} ms"
        lines.append(f"{number}  {_moment(mark.at_ms):%H:%M:%S}  {many}{mark.label}; {without}")
    return [*lines, *drawing.notes]


def _write(fig: Figure, line: str, left: float, top: float, size: float = _POINTS) -> None:
    fig.text(left, top, _short(line, _MAX_LINE_LENGTH), va="top", parse_math=False, **_font(size))


def _widest(canvas: Any, names: Sequence[str]) -> int:
    """Pixels of the longest of these names. The canvas is a FigureCanvasAgg, whose renderer has no types."""
    from matplotlib.text import Text

    if not names:
        return 0
    text = Text(text="\n".join(names), parse_math=False, figure=canvas.figure, **_font())
    return int(text.get_window_extent(canvas.get_renderer()).width) + 1


def _font(size: float = _POINTS) -> dict[str, Any]:
    return {"family": _FONT, "fontsize": size, "color": _rgb(_INK)}


def _short(name: str, longest: int = _MAX_NAME_LENGTH) -> str:
    """Characters that the font does not have become a question mark."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont(_FONT)).get_charmap()
    shortened = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return "".join(one if one.isprintable() and ord(one) in known else "?" for one in shortened)


def _dates(drawing: Drawing) -> tuple[float, float]:
    """Begin and end of the axis."""
    begin, end = _date(drawing.from_ms), _date(drawing.to_ms)
    # Both may be the first or the last time that has a date.
    return (begin, end) if end > begin else (begin - 1, begin) if begin > 0 else (begin, begin + 1)


def _date(at_ms: int) -> float:
    """matplotlib's form of a time."""
    return float(_matplotlib_dates().date2num(_moment(at_ms)))


def _matplotlib_dates() -> Any:
    return import_module("matplotlib.dates")  # it has no types


def _moment(at_ms: int) -> datetime:
    exact = _EPOCH + timedelta(milliseconds=clamp_to_dates(at_ms))
    return min(max(exact, _FIRST), _LAST)


def _rgb(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255
