"""The timelines of groups as one HTML page, without external resources and scripts; names are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.spark.pipelines.forensics.inferred_causes import summary
from holdfast.spark.pipelines.forensics.records import clamp_to_dates
from holdfast.spark.pipelines.forensics.timeline import Drawing, Mark

_WIDTH: Final = 1000
_ROW: Final = 14
_LEFT: Final = 190
_TOP: Final = 20
_AXIS: Final = 22
_TICKS: Final = 5
_TENTHS_BELOW_MS: Final = 60_000
_MAX_LABEL_LENGTH: Final = 60
_MAX_IN_LEGEND: Final = 40

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1240px;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2.2rem;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.drawing{overflow-x:auto}
svg{display:block;width:100%;min-width:1000px;height:auto;background:color-mix(in srgb,currentColor 4%,transparent)}
svg text{font:10px system-ui,sans-serif;fill:currentColor}
line.m{stroke:#d33;stroke-width:1;opacity:.75}rect.s{fill:#d33;opacity:.18}line.t{stroke:currentColor;opacity:.2}
.legend{margin-top:.4rem}.legend span{display:inline-flex;align-items:baseline;margin-right:1rem;overflow-wrap:anywhere}
.legend i{flex:none;width:.8em;height:.8em;margin-right:.3em}
.note{opacity:.75;margin:.2rem 0}
"""


def page(title: str, introduction: Iterable[str], sections: Iterable[str]) -> str:
    """`introduction` is text; `sections` come from `section`."""
    paragraphs = "\n".join(f"<p>{text(line, 400)}</p>" for line in introduction)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{text(title)}</h1>\n{paragraphs}\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(drawing: Drawing, figures: Sequence[tuple[str, str]] = (), causes: Mapping[str, Any] | None = None) -> str:
    """One group: its figures, owners over time, and causes of rebalances."""
    parts = [f"<section><h2>{text(drawing.title)}</h2>"]
    if figures:
        rows = "".join(f'<tr><td>{text(name)}</td><td class="n">{text(value)}</td></tr>' for name, value in figures)
        parts.append(f"<table>{rows}</table>")
    if causes:
        rows = "".join(
            f'<tr><td class="n">{count:,}</td><td>{text(summary(code))}</td></tr>' for code, count in causes.items()
        )
        parts.append(f"<table><tr><th>rebalances</th><th>cause</th></tr>{rows}</table>")
    if drawing.rows or drawing.marks:
        # On a small screen the drawing scrolls sideways, by the keyboard as well.
        parts += [f'<div class="drawing" tabindex="0">{svg(drawing)}</div>', _legend(drawing)]
    else:
        parts.append('<p class="note">Nothing is known of who owned what.</p>')
    parts += [f'<p class="note">{text(note, 400)}</p>' for note in drawing.notes]
    parts.append("</section>")
    return "\n".join(parts)


def svg(drawing: Drawing) -> str:
    height = _TOP + max(1, len(drawing.rows)) * _ROW
    classes = {member: f"rgb({red} {green} {blue})" for member, (red, green, blue) in drawing.colours.items()}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 10} {height + _AXIS}" role="img"'
        f' aria-label="{text(f"owners over time: {drawing.title}")}">'
    ]
    for number, (name, cells) in enumerate(drawing.rows):
        top = _TOP + number * _ROW
        parts.append(f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{text(name, 32)}</text>')
        for cell in cells:
            left, right = _x(drawing, cell.from_ms), _x(drawing, cell.to_ms)
            others = "" if cell.owners == 1 else f"\nand {cell.owners - 1} others in this span"
            title = text(f"{cell.member}\n{name}\n{_time(cell.from_ms)} – {_time(cell.to_ms)}{others}", 300)
            opacity = "" if cell.owners == 1 else ' opacity=".55"'
            parts.append(
                f'<rect x="{left:.1f}" y="{top + 1}" width="{max(0.5, right - left):.1f}" height="{_ROW - 2}"'
                f' fill="{classes[cell.member]}"{opacity}><title>{title}</title></rect>'
            )
    parts += [_mark(drawing, mark, height) for mark in drawing.marks]
    parts += _ticks(drawing, height)
    return "".join(parts) + "</svg>"


def _mark(drawing: Drawing, mark: Mark, height: int) -> str:
    left = _x(drawing, mark.at_ms)
    width = _x(drawing, mark.at_ms + mark.unassigned_ms) - left if mark.count == 1 else 0.0
    many = "" if mark.count == 1 else f"{mark.count:,} rebalances, mostly: "
    title = text(f"{_time(mark.at_ms)}\n{many}{mark.label}\nno assignments for {mark.unassigned_ms:,} ms", 300)
    band = (
        f'<rect class="s" x="{left:.1f}" y="{_TOP}" width="{width:.1f}" height="{height - _TOP}"/>'
        if width > 0.5
        else ""
    )
    return (
        f'<g class="rebalance"><title>{title}</title>{band}'
        f'<line class="m" x1="{left:.1f}" y1="{_TOP - 8}" x2="{left:.1f}" y2="{height}"/></g>'
    )


def _ticks(drawing: Drawing, height: int) -> Iterable[str]:
    before = ""
    for number in range(_TICKS + 1):
        at_ms = drawing.from_ms + (drawing.to_ms - drawing.from_ms) * number // _TICKS
        left = _x(drawing, at_ms)
        day, time = _time(at_ms).split()
        clock_time = time if drawing.to_ms - drawing.from_ms < _TENTHS_BELOW_MS else time.partition(".")[0]
        label = clock_time if day == before else f"{day} {clock_time}"
        before = day
        anchor = "start" if number == 0 else "end" if number == _TICKS else "middle"
        yield f'<line class="t" x1="{left:.1f}" y1="{_TOP}" x2="{left:.1f}" y2="{height + 4}"/>'
        yield f'<text x="{left:.1f}" y="{height + 16}" text-anchor="{anchor}">{label}</text>'


def _legend(drawing: Drawing) -> str:
    shown = list(drawing.colours.items())[:_MAX_IN_LEGEND]
    spans = "".join(
        f'<span><i style="background:rgb({red} {green} {blue})"></i>{text(member)}</span>'
        for member, (red, green, blue) in shown
    )
    left = len(drawing.colours) - len(shown)
    return f'<div class="legend">{spans}{f"and {left:,} more" if left else ""}</div>'


def _x(drawing: Drawing, at_ms: int) -> float:
    fraction = (at_ms - drawing.from_ms) / (drawing.to_ms - drawing.from_ms)
    return _LEFT + _WIDTH * min(1.0, max(0.0, fraction))


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(clamp_to_dates(at_ms) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-5]


def text(value: str, longest: int = _MAX_LABEL_LENGTH) -> str:
    """Names come from clients. Characters that are not printable are escaped."""
    shortened = value if len(value) <= longest else f"{value[:longest]}…"
    shown = "".join(one if one.isprintable() or one == "\n" else f"\\u{ord(one):04x}" for one in shortened)
    return html.escape(shown)
