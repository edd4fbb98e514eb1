"""Runs on a disk of this machine's own: a member that is started again finds there what it knew.

Runs never change and their names are never used again, so a run that is here is the run that is meant. What is loaded
is what is not here; that is the figure that static membership keeps at 0.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import google_crc32c

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines.disk import UNFINISHED
from holdfast.spark.pipelines.enrich.runs import damaged, is_whole, pieces
from holdfast.spark.pipelines.enrich.version import RunFile


class Cache:
    def __init__(self, directory: Path, began_s: float) -> None:
        """`began_s`: when the query was started. What is older is from another life, and checked before it is used: the
        machine may have gone down while it was written."""
        self._directory = directory
        self._began_s = began_s

    def load(self, where: Where, run: RunFile, source: Path) -> int:
        """Have it, from `source` if need be. Returns how many bytes were loaded. Raises Damaged or RunGone."""
        path = self.path(where, run.name)
        if self._has(path, run):
            return 0
        with self._writing(path) as unfinished, unfinished.open("wb") as file:
            crc = 0
            for piece in pieces(source):
                crc = google_crc32c.extend(crc, piece)
                file.write(piece)
            if (file.tell(), crc) != (run.size_bytes, run.crc32c):
                raise damaged(source, f"it has {file.tell():,} bytes of {run.size_bytes:,}, or others")
        return run.size_bytes

    def keep(self, where: Where, name: str, content: bytes) -> None:
        with self._writing(self.path(where, name)) as unfinished:
            unfinished.write_bytes(content)

    def forget_others(self, where: Where, names: Collection[str]) -> None:
        """They belong to versions that are over."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._home(where)) as found:
            for one in found:
                with contextlib.suppress(OSError):
                    # Unfinished ones of this life may be somebody's who tries the same task at the same time.
                    if one.name not in names and not (self._is_of_this_life(one) and one.name.startswith(UNFINISHED)):
                        Path(one.path).unlink()

    def _is_of_this_life(self, one: os.DirEntry[str]) -> bool:
        return one.stat().st_mtime >= self._began_s

    def path(self, where: Where, name: str) -> Path:
        return self._home(where) / name

    def _home(self, where: Where) -> Path:
        return self._directory / where[0] / str(where[1])

    def _has(self, path: Path, run: RunFile) -> bool:
        try:
            about = path.stat()
        except FileNotFoundError:
            return False
        if about.st_size != run.size_bytes:
            return False
        if about.st_mtime < self._began_s:
            if not is_whole(path, run):
                return False
            os.utime(path, (self._began_s, self._began_s))
        return True

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
        try:
            yield unfinished
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)
