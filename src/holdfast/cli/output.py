"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

_EMPTY_CELL: Final = "-"
_GAP: Final = "  "

Cell = str | int | None


def print_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    for line in table_lines(header, rows):
        print(line)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Columns of numbers are aligned to the right; an empty cell is a dash; lines have no trailing spaces."""
    body = [list(row) for row in rows]
    numeric = [_is_numeric([row[at] for row in body]) for at in range(len(header))]
    texts = [list(header), *([printable(cell) for cell in row] for row in body)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(header))]
    return [
        _GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in texts
    ]


def _is_numeric(cells: Sequence[Cell]) -> bool:
    there = [cell for cell in cells if cell is not None]
    return bool(there) and all(isinstance(cell, int) for cell in there)


class StreamedTable:
    """A table whose rows arrive one after the other: columns have fixed widths, which long cells exceed."""

    def __init__(self, header: Sequence[str], widths: Sequence[int]) -> None:
        self._header = header
        self._widths = [max(width, len(name)) for name, width in zip(header, widths, strict=True)]

    def print_header(self) -> None:
        self.print(self._header)

    def print(self, row: Sequence[Cell]) -> None:
        cells = (printable(cell).ljust(width) for cell, width in zip(row, self._widths, strict=True))
        print(_GAP.join(cells).rstrip(), flush=True)


def printable(cell: Cell) -> str:
    """Names come from clients: control characters are escaped."""
    if cell is None or cell == "":
        return _EMPTY_CELL
    text = str(cell)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def is_terminal() -> bool:
    """Whether stdout is a terminal that can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
