"""Files at the location of a pipeline that exist completely or not at all, and are created exclusively.

Names are relative to the location, with slashes. A name is created exclusively by a hard link on a disk
(`durable_files`), and by a conditional write in S3. Reads in S3 see every write that has ended, so both behave alike.
Errors are OSErrors with one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.spark.pipelines.durable_files import Disk

if TYPE_CHECKING:
    from holdfast.spark.pipelines.location import Location

PIECE: Final = 8 * 1024 * 1024
"""The size of a request for a part of a large file. The client gives a request 30 s."""
_PARTS: Final = 2
"""Parts of a file that are sent at the same time. Several partitions are written at the same time as well, and all
share the 30 s."""
_PATIENCE_S: Final = 10.0
_ATTEMPTS: Final = 5
_MAX_MESSAGE: Final = 300
_TREE: Final = re.compile(r"\s*(?:\x1b\[\d*m)*↳(?:\x1b\[\d*m)*\s*")
"""delta-rs shows the causes of an error as a coloured tree."""


class SharedFiles(Protocol):
    def shown(self, name: str) -> str:
        """The whole path, for messages."""

    def path(self, name: str) -> Path | None:
        """The path, if the file is on a disk."""

    def names(self, directory: str, after: str = "") -> list[str]:
        """The names in a directory that are higher than `after`, sorted; empty if it does not exist."""

    def directories(self, directory: str) -> list[str]:
        """Sorted; empty if the directory does not exist. Includes names with a leading dot: topics may have one."""

    def modified_s(self, directory: str) -> dict[str, float]:
        """When each file of a directory was written, by the clock of the file system, in seconds since 1970."""

    def read(self, name: str) -> bytes | None:
        """None if it does not exist."""

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file that may be large. Raises FileNotFoundError."""

    def create(self, name: str, content: bytes) -> bool:
        """The whole file is durable when this returns. False if the name is taken by another content."""

    def write(self, name: str, content: bytes) -> None:
        """Creates a file that may be large, with a name that nobody else uses."""

    def touch(self, name: str) -> None:
        """Raises FileNotFoundError if it does not exist. On a disk, it is then as old as a new one."""

    def flush(self, names: Sequence[str]) -> None:
        """Makes files durable that another program has written, and their names. Names that do not exist are left
        out."""

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Makes the names in these directories durable."""

    def remove(self, name: str) -> None:
        """Has no effect if it does not exist."""

    def remove_unfinished(self, directory: str, before_s: float) -> None:
        """Removes the temporary files of writers that were killed before that time."""


def open_files(location: Location, disk: Disk | None = None) -> SharedFiles:
    """`disk` is for tests."""
    return LocalFiles(location.path, disk) if location.is_local else S3Files(location)


class LocalFiles:
    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or Disk()

    def shown(self, name: str) -> str:
        return str(self._directory / name)

    def path(self, name: str) -> Path | None:
        return self._directory / name

    def names(self, directory: str, after: str = "") -> list[str]:
        return [name for name in self._disk.names(self._directory / directory) if name > after]

    def directories(self, directory: str) -> list[str]:
        return self._disk.directories(self._directory / directory)

    def modified_s(self, directory: str) -> dict[str, float]:
        return self._disk.modified_s(self._directory / directory)

    def read(self, name: str) -> bytes | None:
        return self._disk.read(self._directory / name)

    def pieces(self, name: str) -> Iterator[bytes]:
        with (self._directory / name).open("rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def create(self, name: str, content: bytes) -> bool:
        return self._disk.create(self._directory / name, content)

    def write(self, name: str, content: bytes) -> None:
        self.create(name, content)

    def touch(self, name: str) -> None:
        self._disk.touch(self._directory / name)

    def flush(self, names: Sequence[str]) -> None:
        for name in names:
            self._disk.flush(self._directory / name)
        for directory in sorted({(self._directory / name).parent for name in names}):
            self._disk.sync_directory(directory)

    def sync_directories(self, directories: Iterable[str]) -> None:
        for directory in directories:
            self._disk.sync_directory(self._directory / directory)

    def remove(self, name: str) -> None:
        self._disk.remove(self._directory / name)

    def remove_unfinished(self, directory: str, before_s: float) -> None:
        self._disk.remove_unfinished(self._directory / directory, before_s)


class S3Files:
    """`_step` is called before each request: tests simulate crashes there."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def shown(self, name: str) -> str:
        return f"{self._location}/{name}"

    def path(self, name: str) -> Path | None:  # noqa: ARG002  # of the protocol
        return None

    def names(self, directory: str, after: str = "") -> list[str]:
        import obstore

        if after:
            return sorted(self._listed(directory, after))
        self._step("list", directory)
        with s3_errors(self._location):
            found = obstore.list_with_delimiter(self._location.store, f"{directory}/")
        return sorted(_last(path) for path in [*(one["path"] for one in found["objects"]), *found["common_prefixes"]])

    def directories(self, directory: str) -> list[str]:
        import obstore

        self._step("list", directory)
        with s3_errors(self._location):
            found = obstore.list_with_delimiter(self._location.store, f"{directory}/")
        return sorted(map(_last, found["common_prefixes"]))

    def modified_s(self, directory: str) -> dict[str, float]:
        return self._listed(directory)

    def _listed(self, directory: str, after: str = "") -> dict[str, float]:
        import obstore

        self._step("list", directory)
        offset = f"{directory}/{after}" if after else None
        with s3_errors(self._location):
            chunks = list(obstore.list(self._location.store, f"{directory}/", offset=offset, chunk_size=1000))
        return {_last(one["path"]): one["last_modified"].timestamp() for chunk in chunks for one in chunk}

    def read(self, name: str) -> bytes | None:
        import obstore

        self._step("read", name)
        try:
            with s3_errors(self._location):
                return bytes(obstore.get(self._location.store, name).bytes())
        except FileNotFoundError:
            return None

    def pieces(self, name: str) -> Iterator[bytes]:
        import obstore

        size_bytes = self._size_bytes(name)
        for start in range(0, size_bytes, PIECE):
            with s3_errors(self._location):
                piece = obstore.get_range(self._location.store, name, start=start, end=min(start + PIECE, size_bytes))
            yield bytes(piece)

    def create(self, name: str, content: bytes) -> bool:
        """If the response of a request is lost, the client may send it again, and gets the error that the name is
        taken. Therefore the content is compared. It contains the id of its writer, so it is never that of another."""
        for _ in range(_ATTEMPTS):
            try:
                with _unless(lambda: self.read(name) == content):
                    self._put_new(name, content)
                return True
            except FileExistsError:
                there = self.read(name)
            # S3 also refuses a write while another one to the same name is in progress, which may fail.
            if there is not None:
                return there == content
        raise OSError(errno.EBUSY, f"others create and delete it all the time: {self.shown(name)}")

    def _put_new(self, name: str, content: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        self._step("create", name)
        with s3_errors(self._location):
            try:
                obstore.put(self._location.store, name, content, mode="create")
            except AlreadyExistsError as error:
                raise FileExistsError(name) from error

    def write(self, name: str, content: bytes) -> None:
        """A large file is uploaded in parts, and exists when the upload is completed. The parts of an upload that is
        not completed are invisible; a lifecycle rule of the bucket deletes them."""
        import obstore

        self._step("write", name)
        with _unless(lambda: self._size_bytes(name) == len(content)), s3_errors(self._location):
            obstore.put(self._location.store, name, content, chunk_size=PIECE, max_concurrency=_PARTS)

    def touch(self, name: str) -> None:
        self._size_bytes(name)

    def flush(self, names: Sequence[str]) -> None:
        """A file is durable before it is visible."""

    def sync_directories(self, directories: Iterable[str]) -> None:
        """A name is durable before it is visible."""

    def _size_bytes(self, name: str) -> int:
        import obstore

        self._step("head", name)
        with s3_errors(self._location):
            return obstore.head(self._location.store, name)["size"]

    def remove(self, name: str) -> None:
        import obstore

        self._step("remove", name)
        with s3_errors(self._location), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._location.store, name)

    def remove_unfinished(self, directory: str, before_s: float) -> None:
        """There are none."""

    def _step(self, what: str, name: str) -> None:
        """A hook for tests."""


@contextlib.contextmanager
def _unless(is_there: Callable[[], bool]) -> Iterator[None]:
    """Ignores an error if the request was carried out although it ended with one. A store that has not answered for
    long is not asked again."""
    began_s = time.monotonic()
    try:
        yield
    except FileExistsError:
        raise
    except OSError:
        try:
            if time.monotonic() - began_s < _PATIENCE_S and is_there():
                return
        except OSError:
            pass  # the first error is the one to report
        raise


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


@contextlib.contextmanager
def s3_errors(location: Location) -> Iterator[None]:
    """Errors of the object store as OSError, in one line. FileNotFoundError if the object does not exist."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        text = str(error)
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory") from error
        raise OSError(errno.EIO, _reason(text, location)) from error


def _reason(text: str, location: Location) -> str:
    """The cause and what to do. obstore's messages have the whole response and Rust's debug output."""
    code = re.search(r"<Code>(\w+)</Code>", text)
    shown = f" ({code[1]})" if code else ""
    if "NoSuchBucket" in text:
        return f"the bucket {location.url.split('/')[2]} does not exist{shown}"
    if "/latest/api/token" in text or "/latest/meta-data" in text:  # where a machine of EC2 gets its credentials
        return (
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as storage options or in the "
            "environment of driver and executors"
        )
    if "status code: 403" in text or "status code: 401" in text:
        return f"access was denied{shown}: check the credentials and the permissions of the bucket"
    if "HTTP error:" in text:
        endpoint = re.search(r"https?://[^/ ]+", text)
        return f"{endpoint[0] if endpoint else 'S3'} does not answer: check AWS_ENDPOINT_URL and the network"
    return one_line(text)


def one_line(message: str) -> str:
    """The message of a Rust library, without the debug output that follows it."""
    text = " ".join(_TREE.sub(": ", message.partition("Debug source:")[0]).split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
