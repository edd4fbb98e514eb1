"""Files on a POSIX file system that exist completely or not at all, and are created exclusively.

A file is written under a temporary name, flushed to the device, and then gets its name by a hard link, which fails if
the name is taken. A reader that sees the name sees the whole file, also after a crash.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

UNFINISHED: Final = ".unfinished-"
"""The prefix of temporary names."""


class Disk:
    """`_step` is called before each operation on the device: tests simulate crashes there."""

    def names(self, directory: Path) -> list[str]:
        """Sorted; empty if the directory does not exist. Names that begin with a dot are left out: temporary names, and
        files that a file system creates, as NFS does for a file that is deleted while it is open."""
        try:
            with os.scandir(directory) as found:
                return sorted(one.name for one in found if not one.name.startswith("."))
        except FileNotFoundError:
            return []

    def directories(self, directory: Path) -> list[str]:
        """Sorted; empty if the directory does not exist. Includes names with a leading dot: topics may have one."""
        try:
            with os.scandir(directory) as found:
                return sorted(one.name for one in found if one.is_dir())
        except FileNotFoundError:
            return []

    def modified_s(self, directory: Path) -> dict[str, float]:
        """When each file was written, in seconds since 1970; without the names that `names` leaves out."""
        return self._modified_s(directory, lambda name: not name.startswith("."))

    def remove_unfinished(self, directory: Path, before_s: float) -> None:
        """Removes temporary files of writers that were killed. A live writer renames its file right after writing
        it."""
        for name, written_s in self._modified_s(directory, lambda name: name.startswith(UNFINISHED)).items():
            if written_s <= before_s:
                self.remove(directory / name)

    @staticmethod
    def _modified_s(directory: Path, wanted: Callable[[str], bool]) -> dict[str, float]:
        found = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            for one in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                    if wanted(one.name):
                        found[one.name] = one.stat().st_mtime
        return found

    def read(self, path: Path) -> bytes | None:
        """None if it does not exist."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: Path, content: bytes) -> bool:
        """The whole file is on the device when this returns. False if the name is taken."""
        self.make_directory(path.parent)
        unfinished = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
        try:
            self._write(unfinished, content)
            created = self._link(unfinished, path)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to report
                unfinished.unlink(missing_ok=True)
            raise
        self.remove(unfinished)
        self.sync_directory(path.parent)
        return created

    def remove(self, path: Path) -> None:
        self._step("remove", path)
        path.unlink(missing_ok=True)

    def touch(self, path: Path) -> None:
        """Marks the file as in use. Raises FileNotFoundError."""
        self._step("touch", path)
        os.utime(path)

    def flush(self, path: Path) -> None:
        """Makes the content of a file durable that another program has written. Has no effect if it does not exist."""
        self._step("flush", path)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, directory: Path) -> None:
        """With its parents, all of them durable when this returns."""
        if directory.is_dir():
            return
        self.make_directory(directory.parent)
        self._step("make directory", directory)
        directory.mkdir(exist_ok=True)
        self.sync_directory(directory.parent)

    def sync_directory(self, directory: Path) -> None:
        self._step("sync directory", directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write(self, path: Path, content: bytes) -> None:
        self._step("write", path)
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            self._step("sync", path)
            os.fsync(file.fileno())

    def _link(self, unfinished: Path, path: Path) -> bool:
        self._step("link", path)
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return _is_same_file(unfinished, path)
        return True

    def _step(self, what: str, path: Path) -> None:
        """A hook for tests."""


def _is_same_file(unfinished: Path, path: Path) -> bool:
    """Whether the name already refers to this file. NFS may have created the link and lost the response. The client
    repeats the request and gets the error that the name exists."""
    try:
        return path.samefile(unfinished)
    except FileNotFoundError:
        return False
