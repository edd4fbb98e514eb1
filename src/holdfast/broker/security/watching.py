"""Files that somebody may replace while the broker runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Mark = tuple[int, int, int, int] | None


class WatchedFiles:
    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self.look()

    def look(self) -> None:
        """Remembers the files as they are. Comes before reading them: a change in between is then still noticed."""
        self._seen = self._marks()

    @property
    def changed(self) -> bool:
        """Whether one of them is another than when last looked at. Some microseconds: `stat` only."""
        return self._marks() != self._seen

    def _marks(self) -> tuple[Mark, ...]:
        return tuple(_mark(path) for path in self._paths)


def _mark(path: Path) -> Mark:
    try:
        found = os.stat(path)  # noqa: PTH116 - Path.stat() does the same, slower
    except OSError:
        return None
    # ctime: whoever may read it is changed by chmod and chown, which leave the content's time alone.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
