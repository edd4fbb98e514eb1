"""A cache of runs on a local disk, where a restarted member finds its state.

Runs never change and their names are never used again, so a cached run is always valid. Only missing runs are loaded;
with static membership their number is 0.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import google_crc32c

from holdfast.spark.pipelines.aggregate.run_files import StoredRun, damaged, is_whole
from holdfast.spark.pipelines.aggregate.version import RunFile
from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.types import TopicPartition


class RunCache:
    def __init__(self, directory: Path, began_s: float) -> None:
        """`began_s`: when the query was started. Older files are checked before they are used, because the machine may
        have crashed while they were written."""
        self._directory = directory
        self._began_s = began_s

    def load(self, where: TopicPartition, run: RunFile, source: StoredRun) -> int:
        """Loads the run from `source` if it is not cached. Returns the number of bytes. Raises Damaged or
        RunMissing."""
        path = self.path(where, run.name)
        if self._has(path, run):
            return 0
        with self._writing(path) as unfinished, unfinished.open("wb") as file:
            crc = 0
            for piece in source.pieces():
                crc = google_crc32c.extend(crc, piece)
                file.write(piece)
            if (file.tell(), crc) != (run.size_bytes, run.crc32c):
                raise damaged(source, f"it has {file.tell():,} bytes of {run.size_bytes:,}, or others")
        return run.size_bytes

    def put(self, where: TopicPartition, name: str, content: bytes) -> None:
        with self._writing(self.path(where, name)) as unfinished:
            unfinished.write_bytes(content)

    def evict_others(self, where: TopicPartition, names: Collection[str]) -> None:
        """Deletes runs of superseded versions."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._partition_dir(where)) as found:
            for one in found:
                with contextlib.suppress(OSError):
                    # Temporary files of this query may belong to another attempt of the same task.
                    if one.name not in names and not (self._is_current(one) and one.name.startswith(UNFINISHED)):
                        Path(one.path).unlink()

    def _is_current(self, one: os.DirEntry[str]) -> bool:
        return one.stat().st_mtime >= self._began_s

    def path(self, where: TopicPartition, name: str) -> Path:
        return self._partition_dir(where) / name

    def _partition_dir(self, where: TopicPartition) -> Path:
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
