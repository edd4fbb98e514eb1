"""Detects files that are replaced while the broker runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int, int, int] | None


class FileWatcher:
    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self.refresh()

    def refresh(self) -> None:
        """Remembers the state of the files. Call it before reading them, so that a change in between is noticed."""
        self._seen = self._stamps()

    @property
    def changed(self) -> bool:
        """Whether one of them changed since `refresh`. Takes some microseconds: `stat` only."""
        return self._stamps() != self._seen

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - Path.stat() does the same, slower
    except OSError:
        return None
    # ctime, because chmod and chown change the permissions of the file and not its mtime.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
