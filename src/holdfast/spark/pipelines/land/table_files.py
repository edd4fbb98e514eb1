"""The Parquet files of a table, on a disk or in S3. They are complete and durable before an entry of the log lists
them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import open_files, s3_errors

if TYPE_CHECKING:
    from holdfast.spark.pipelines.land.data_file import DataFile


class TableFiles:
    """Used on the driver, and in the tasks on the executors."""

    def __init__(self, location: Location, disk: Disk | None = None) -> None:
        self._location = location
        self._disk = disk or Disk()
        self._files = open_files(location, self._disk)
        self._synced: set[Path] = set()

    # -- in a task -----------------------------------------------------------------------------------------------------

    def local_path(self, path: str) -> Path:
        """Where the task writes this file. In S3, a file appears when it has been uploaded completely."""
        if self._location.is_local:
            full = self._location.path / path
            full.parent.mkdir(parents=True, exist_ok=True)
            return full
        descriptor, name = tempfile.mkstemp(prefix="holdfast-land-", suffix=".parquet")
        os.close(descriptor)
        return Path(name)

    def publish(self, path: str, local: Path) -> int:
        """Makes the content of a complete file durable. Returns its size."""
        size_bytes = local.stat().st_size
        if self._location.is_local:
            descriptor = os.open(local, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            return size_bytes
        import obstore

        with s3_errors(self._location):
            obstore.put(self._location.store, path, local)
        local.unlink()
        return size_bytes

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[Path]:
        """The file on a local disk."""
        if self._location.is_local:
            yield self._location.path / path
            return
        import obstore

        with tempfile.NamedTemporaryFile(prefix="holdfast-land-", suffix=".parquet") as copy:
            with s3_errors(self._location):
                for piece in obstore.get(self._location.store, path).stream():
                    copy.write(piece)
            copy.flush()
            yield Path(copy.name)

    # -- on the driver -------------------------------------------------------------------------------------------------

    def make_durable(self, files: Iterable[DataFile]) -> None:
        """The content of the files is on the device already; this makes their names durable."""
        if not self._location.is_local:
            return
        table = self._location.path
        for directory in {(table / file.path).parent for file in files}:
            self._disk.sync_directory(directory)
            if directory not in self._synced:
                self._disk.sync_directory(directory.parent)
                self._disk.sync_directory(table)
                self._synced.add(directory)

    def mark_used(self, files: Iterable[DataFile]) -> None:
        """Before a commit: compaction deletes old files that no entry lists, and the batch may have taken long."""
        if self._location.is_local:
            for file in files:
                self._disk.touch(self._location.path / file.path)

    def remove(self, path: str) -> None:
        self._files.remove(path)
