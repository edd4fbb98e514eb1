"""The timeline of a group as a PNG. It needs only the standard library, not Spark.

drawing = Timeline.of("orders", intervals, marks).drawing()
Path("owners.png").write_bytes(png(drawing))
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from holdfast.spark.pipelines.forensics import bitmap_font
from holdfast.spark.pipelines.forensics.records import clamp_to_dates
from holdfast.spark.pipelines.forensics.timeline import Colour, Drawing

_PAPER: Final[Colour] = (255, 255, 255)
_INK: Final[Colour] = (40, 40, 40)
_PALE: Final[Colour] = (235, 235, 235)
_RED: Final[Colour] = (214, 40, 40)
_MARGIN: Final = 12
_LINE: Final = 12
_LETTER: Final = bitmap_font.WIDTH + 1
_MAX_NAME_LENGTH: Final = 28
_MAX_IN_LEGEND: Final = 24
_TICKS: Final = 5


class Canvas:
    """Rows of red, green and blue."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._rows = [bytearray(bytes(_PAPER) * width) for _ in range(height)]

    def rectangle(self, left: int, top: int, width: int, height: int, colour: Colour, strength: float = 1.0) -> None:
        begin, end = max(0, left), min(self.width, left + width)
        if begin >= end:
            return
        for row in self._rows[max(0, top) : max(0, top + height)]:
            if strength >= 1:
                row[begin * 3 : end * 3] = bytes(colour) * (end - begin)
            else:
                for at in range(begin * 3, end * 3):
                    row[at] = round(row[at] + (colour[at % 3] - row[at]) * strength)

    def write(self, left: int, top: int, words: str, colour: Colour = _INK) -> None:
        for letter in words:
            for down, dots in enumerate(bitmap_font.glyph(letter)):
                for right, dot in enumerate(dots):
                    if dot == "#":
                        self.rectangle(left + right, top + down, 1, 1, colour)
            left += _LETTER

    def png(self) -> bytes:
        data = b"".join(b"\0" + row for row in self._rows)
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(drawing: Drawing, *, width: int = 1200, row_height: int = 16) -> bytes:
    """Rows are partitions, colours members, red lines rebalances; pale red is their duration."""
    names = [_short(name) for name, _ in drawing.rows]
    left = _MARGIN + max((len(name) for name in names), default=0) * _LETTER + 8
    top = _MARGIN + _LINE + 10
    bottom = top + max(1, len(names)) * row_height
    legend = _legend_lines(drawing, width - 2 * _MARGIN)
    canvas = Canvas(width, bottom + 2 * _LINE + len(legend) * _LINE + len(drawing.notes) * _LINE + _MARGIN)
    plot = width - left - _MARGIN

    def x(at_ms: int) -> int:
        fraction = (at_ms - drawing.from_ms) / (drawing.to_ms - drawing.from_ms)
        return left + round(plot * min(1.0, max(0.0, fraction)))

    canvas.write(_MARGIN, _MARGIN, drawing.title[: (width - 2 * _MARGIN) // _LETTER])
    for number, (_, cells) in enumerate(drawing.rows):
        row_top = top + number * row_height
        canvas.write(_MARGIN, row_top + (row_height - bitmap_font.HEIGHT) // 2, names[number])
        canvas.rectangle(left, row_top + 1, plot, row_height - 2, _PALE)
        for cell in cells:
            begin = x(cell.from_ms)
            colour, strength = drawing.colours[cell.member], 1.0 if cell.owners == 1 else 0.6
            canvas.rectangle(begin, row_top + 1, max(1, x(cell.to_ms) - begin), row_height - 2, colour, strength)
    for mark in drawing.marks:
        begin = x(mark.at_ms)
        if mark.count == 1:
            canvas.rectangle(begin, top, x(mark.at_ms + mark.unassigned_ms) - begin, bottom - top, _RED, 0.2)
        canvas.rectangle(begin, top - 6, 1, bottom - top + 6, _RED)
    _axis(canvas, drawing, left, bottom, plot)
    _words(canvas, drawing, legend, bottom + 2 * _LINE)
    return canvas.png()


def _axis(canvas: Canvas, drawing: Drawing, left: int, bottom: int, plot: int) -> None:
    for number in range(_TICKS + 1):
        at_ms = drawing.from_ms + (drawing.to_ms - drawing.from_ms) * number // _TICKS
        words = datetime.fromtimestamp(clamp_to_dates(at_ms) / 1000, UTC).strftime("%H:%M:%S")
        middle = left + plot * number // _TICKS
        canvas.rectangle(middle, bottom, 1, 4, _INK)
        begin = min(max(left, middle - len(words) * _LETTER // 2), left + plot - len(words) * _LETTER)
        canvas.write(begin, bottom + 7, words)


def _legend_lines(drawing: Drawing, room: int) -> list[list[tuple[str, Colour]]]:
    lines: list[list[tuple[str, Colour]]] = [[]]
    used = 0
    for member, colour in list(drawing.colours.items())[:_MAX_IN_LEGEND]:
        needed = (len(_short(member)) + 3) * _LETTER
        if used + needed > room and lines[-1]:
            lines.append([])
            used = 0
        lines[-1].append((_short(member), colour))
        used += needed
    left = len(drawing.colours) - _MAX_IN_LEGEND
    return lines if left <= 0 else [*lines, [(f"and {left} more", _PAPER)]]


def _words(canvas: Canvas, drawing: Drawing, legend: Sequence[Sequence[tuple[str, Colour]]], top: int) -> None:
    for line in legend:
        left = _MARGIN
        for name, colour in line:
            canvas.rectangle(left, top, 8, 8, colour)
            canvas.write(left + 11, top, name)
            left += (len(name) + 3) * _LETTER
        top += _LINE
    for note in drawing.notes:
        canvas.write(_MARGIN, top, note[: (canvas.width - 2 * _MARGIN) // _LETTER])
        top += _LINE


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 2]}.."
