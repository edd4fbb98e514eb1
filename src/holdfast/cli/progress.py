"""Progress of a long command: one line on stderr that is redrawn, only on a terminal."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

_EVERY_S: Final = 0.1
_WIDTH: Final = 30
_CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """Without a `total` there is a count and no bar."""

    def __init__(self, what: str, total: int | None = None, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._seen = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._done = 0
        self._count = 0
        self._drawn_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def step(self, amount: int = 1, count: int | None = None) -> None:
        """Adds `amount` to the progress; `count` is the number to show if it differs."""
        self._done += amount
        self._count = self._done if count is None else count
        if self._seen and time.monotonic() - self._drawn_at >= _EVERY_S:
            self._draw()

    def clear(self) -> None:
        """Called before other output to the terminal."""
        if self._seen and self._drawn_at:
            print(_CLEAR_LINE, end="", file=self._stream, flush=True)

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        line = f"{self._what} {self._count:,}"
        if self._total:
            part = min(1.0, self._done / self._total)
            filled = round(part * _WIDTH)
            line = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {part:4.0%}  {line}"
        print(f"{_CLEAR_LINE}{line}", end="", file=self._stream, flush=True)
