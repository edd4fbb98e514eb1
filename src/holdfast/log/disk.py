"""The one place that changes anything on disk.

Everything in log/ that writes, cuts, renames or removes goes through here, for two reasons: the order of
effects can be read in the callers, and tests can stop the world between any two of them. A test sets `fault`;
it is then called with the name of each point in turn and may raise OSError (a full disk) or end the process
(a kill). A write has a point in its middle, too, where half of the bytes are on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

fault: Callable[[str], None] | None = None

# Linux' limit on the pieces of one writev.
_IOV_MAX = 1024
_TEMPORARY = ".tmp"


def write_at(fd: int, pieces: Sequence[Buffer], position: int) -> None:
    """Write all pieces, one after the other; with one system call when the file system takes them whole."""
    if fault is not None:
        _write_with_points(fd, b"".join(pieces), position)
        return
    size = sum(map(len, pieces))
    if len(pieces) <= _IOV_MAX:
        written = os.pwritev(fd, pieces, position)
        if written == size:
            return
    _write_rest(fd, b"".join(pieces), position)


def _write_rest(fd: int, data: bytes, position: int) -> None:
    # A short write says only that something is wrong; writing on makes the system say what.
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]


def _write_with_points(fd: int, data: bytes, position: int) -> None:
    half = len(data) // 2
    _point("before write")
    _write_rest(fd, data[:half], position)
    _point("half written")
    _write_rest(fd, data[half:], position + half)
    _point("written")


def truncate(fd: int, size: int) -> None:
    _point("before truncate")
    os.ftruncate(fd, size)
    _point("truncated")


def fdatasync(fd: int) -> None:
    _point("before fdatasync")
    os.fdatasync(fd)


def create(path: Path) -> int:
    """Open a file for reading and writing, and create it when it is missing."""
    _point("before create")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def make_directory(path: Path) -> None:
    """Create a directory; an existing one is fine. Its name outlives a power cut once its parent is synced."""
    _point("before mkdir")
    path.mkdir(exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlive a power cut."""
    _point("before directory sync")
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def allocate(fd: int, size: int) -> None:
    """Give a file this size, and all the room that takes."""
    _point("before allocate")
    os.posix_fallocate(fd, 0, size)
    _point("allocated")


def replace_file(path: Path, data: bytes, *, sync: bool = True, made_of: Path | None = None) -> None:
    """The file's whole content, old or new, at any moment: temporary file, fsync, rename, fsync of the directory.

    Without `sync` that holds for a kill, not for a power cut: for files that are checked when they are read. With
    `made_of` the temporary file is that one, whose room is there already; it must be at least as large as the data.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    if made_of is not None:
        rename(made_of, temporary)
    fd = create(temporary)
    try:
        if made_of is None:
            os.ftruncate(fd, 0)
        write_at(fd, [data], 0)
        if made_of is not None:
            truncate(fd, len(data))
        if sync:
            _point("before fsync")
            os.fsync(fd)
    finally:
        os.close(fd)
    rename(temporary, path)
    if sync:
        sync_directory(path.parent)


def rename(source: Path, target: Path) -> None:
    _point("before rename")
    source.replace(target)
    _point("renamed")


def unlink(path: Path) -> None:
    """Remove a file; one that is gone already is fine."""
    _point("before unlink")
    path.unlink(missing_ok=True)
    _point("unlinked")


def remove_directory(path: Path) -> None:
    _point("before rmdir")
    path.rmdir()


def _point(name: str) -> None:
    if fault is not None:
        fault(name)
