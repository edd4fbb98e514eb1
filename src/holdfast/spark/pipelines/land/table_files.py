"""The Parquet files of a table, on a disk or in S3. They are complete and durable before an entry of the log lists
them."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles, open_files, s3_errors

if TYPE_CHECKING:
    from holdfast.spark.pipelines.land.data_file import DataFile

_CONCURRENT_REQUESTS: Final = 16


class TableFiles:
    """Used on the driver, and in the tasks on the executors."""

    def __init__(self, location: Location, files: SharedFiles | None = None) -> None:
        """`files` is for tests."""
        self._location = location
        self._files = files or open_files(location)
        self._synced: set[str] = set()

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
        for directory in sorted({file.path.rpartition("/")[0] for file in files}):
            self._files.sync_directories([directory])
            if directory not in self._synced:
                self._files.sync_directories([directory.rpartition("/")[0], ""])
                self._synced.add(directory)

    def mark_used(self, files: Iterable[DataFile]) -> None:
        """Before a commit: a compaction deletes files that no entry lists after its grace time, and writing the files
        may have taken longer. Raises FileNotFoundError.

        On a disk, the files are then as old as new ones. S3 cannot do that, so each file is looked up, for every
        commit. The age of the batch does not show whether a look-up is necessary: the grace time is an option of
        another command, and the clock of a suspended machine may stand still.
        """
        paths = [file.path for file in files]
        if self._location.is_local or len(paths) <= 1:
            for path in paths:
                self._touch(path)
            return
        with ThreadPoolExecutor(min(len(paths), _CONCURRENT_REQUESTS), "holdfast-look-up") as pool:
            for _ in pool.map(self._touch, paths):
                pass

    def _touch(self, path: str) -> None:
        try:
            self._files.touch(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                errno.ENOENT,
                f"{path} was deleted before its commit, because it was older than the grace time of a compaction",
            ) from error

    def remove(self, path: str) -> None:
        self._files.remove(path)
