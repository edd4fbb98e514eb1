"""Small files at the location of a pipeline that exist completely or not at all, and are created exclusively.

Names are relative to the location, with slashes. On a disk a hard link creates a name exclusively (`durable_files`), and
in S3 a conditional write does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.spark.pipelines.durable_files import Disk

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.spark.pipelines.location import Location


class SharedFiles(Protocol):
    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""

    def read(self, name: str) -> bytes | None:
        """None if it does not exist."""

    def create(self, name: str, content: bytes) -> bool:
        """The whole file is durable when this returns. False if the name is taken by another content."""

    def remove(self, name: str) -> None:
        """Has no effect if it does not exist."""


def open_files(location: Location, disk: Disk | None = None) -> SharedFiles:
    """`disk` is for tests."""
    return LocalFiles(location.path, disk) if location.is_local else S3Files(location)


class LocalFiles:
    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or Disk()

    def names(self, directory: str) -> list[str]:
        return self._disk.names(self._directory / directory)

    def read(self, name: str) -> bytes | None:
        return self._disk.read(self._directory / name)

    def create(self, name: str, content: bytes) -> bool:
        return self._disk.create(self._directory / name, content)

    def remove(self, name: str) -> None:
        self._disk.remove(self._directory / name)


class S3Files:
    def __init__(self, location: Location) -> None:
        self._location = location

    def names(self, directory: str) -> list[str]:
        import obstore

        prefix = f"{directory}/"
        with s3_errors(self._location):
            found = obstore.list_with_delimiter(self._location.store, prefix)
            paths = [*(one["path"] for one in found["objects"]), *found["common_prefixes"]]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def read(self, name: str) -> bytes | None:
        import obstore

        with s3_errors(self._location):
            try:
                return bytes(obstore.get(self._location.store, name).bytes())
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with s3_errors(self._location):
            try:
                obstore.put(self._location.store, name, content, mode="create")
            except AlreadyExistsError:
                # The response of a first attempt may have been lost, and the client has tried again.
                return self.read(name) == content
        return True

    def remove(self, name: str) -> None:
        import obstore

        with s3_errors(self._location), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._location.store, name)


_MAX_MESSAGE: Final = 300


@contextlib.contextmanager
def s3_errors(location: Location) -> Iterator[None]:
    """Errors of the object store as OSError, in one line."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:  # a missing bucket is a file that is not found
        raise OSError(None, one_line(str(error)), str(location)) from error


def one_line(message: str) -> str:
    """The message without the Rust debug output that follows it."""
    text = " ".join(message.partition("Debug source:")[0].split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
