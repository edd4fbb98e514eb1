"""A POSIX file system, and what pipelines ask of it: files that are there whole or not at all, and once only.

A file is written under another name, flushed to the device, and only then gets its own by a hard link, which
fails if the name is taken. Whoever sees the name sees all of the file, also after a crash.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Final

from holdfast.client.errors import ConfigError

UNFINISHED: Final = ".unfinished-"
"""How the names of files begin that have not got theirs."""

_PATTERN: Final = frozenset("*?[]{}\\")


def shared_path(text: str | os.PathLike[str], what: str = "table") -> Path:
    """The directory of what a pipeline keeps, absolute. Raises ConfigError for file systems on which creation is not
    known to be exclusive."""
    given = os.fspath(text)
    scheme, colon, rest = given.partition(":")
    if colon and scheme.lower() == "file":
        given = "/" + rest.lstrip("/")
    elif "://" in given:
        raise ConfigError(
            f"{given!r}: a {what} needs a file system with hard links (local, or shared by driver and executors, as "
            f"NFS is), because its entries are created exclusively; {scheme}: is none that is known to do that. Keep "
            "it on a mounted directory"
        )
    if not given:
        raise ConfigError(f"the path of the {what} is empty")
    if _PATTERN & set(given):
        raise ConfigError(f"{given!r} has one of {' '.join(sorted(_PATTERN))} in it, which Spark reads as a pattern")
    return Path(given).absolute()


def spark_path(path: Path) -> str:
    """As Spark takes it: unlike a URI, nothing in it is escaped."""
    return f"file://{path}"


class Disk:
    """`_step` is called before each thing that is done to the device: tests let the process die there."""

    def names(self, directory: Path) -> list[str]:
        """In their order; none if there is no such directory. Those that begin with a dot are left out: unfinished
        ones, and what a file system puts there for itself, as NFS does for a file that is deleted while it is open."""
        try:
            with os.scandir(directory) as found:
                return sorted(one.name for one in found if not one.name.startswith("."))
        except FileNotFoundError:
            return []

    def unfinished(self, directory: Path) -> list[str]:
        """What has not got its name yet, or never will: somebody was killed there."""
        try:
            with os.scandir(directory) as found:
                return sorted(one.name for one in found if one.name.startswith(UNFINISHED))
        except FileNotFoundError:
            return []

    def directories(self, directory: Path) -> list[str]:
        """In their order; none if there is no such directory. A dot in front says nothing: topics may have one."""
        try:
            with os.scandir(directory) as found:
                return sorted(one.name for one in found if one.is_dir())
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes | None:
        """None if it is not there."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def create(self, path: Path, content: bytes) -> bool:
        """Whole, and on the device when this returns. False if the name is taken."""
        self.make_directory(path.parent)
        unfinished = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
        try:
            self._write(unfinished, content)
            created = self._link(unfinished, path)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell of
                unfinished.unlink(missing_ok=True)
            raise
        self.remove(unfinished)
        self.sync_directory(path.parent)
        return created

    def remove(self, path: Path) -> None:
        self._step("remove", path)
        path.unlink(missing_ok=True)

    def touch(self, path: Path) -> None:
        """It is in use from now on. Raises FileNotFoundError."""
        self._step("touch", path)
        os.utime(path)

    def make_directory(self, directory: Path) -> None:
        """With those above it, each of them entered in the one above it when this returns."""
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
            return _is_the_same(unfinished, path)
        return True

    def _step(self, what: str, path: Path) -> None:
        """Nothing: a place for tests to step in."""


def _is_the_same(unfinished: Path, path: Path) -> bool:
    """Whether the name that is taken was taken by this very file. NFS may have made the link and lost the answer; the
    client asks again, and is told that the name is there."""
    try:
        return path.samefile(unfinished)
    except FileNotFoundError:
        return False
