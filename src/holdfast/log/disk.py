"""All functions that change files.

All code in log/ that writes, truncates, renames or removes files uses this module, for two reasons: the callers show
the order of effects, and tests can inject faults between any two of them. A test sets `fault`, which is called with the
name of each point and may raise OSError (a full disk) or end the process (a crash). A write also has a point in its
middle, where half of the bytes are on disk.
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
    """Write all pieces in order, with one system call if the file system accepts all bytes."""
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
    # A short write does not report the error. Writing the rest makes the system report it.
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
    """Open a file for reading and writing, and create it if it is missing."""
    _point("before create")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def make_directory(path: Path) -> None:
    """Create a directory if it does not exist. Its name survives a power failure after its parent is synced."""
    _point("before mkdir")
    path.mkdir(exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure."""
    _point("before directory sync")
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def allocate(fd: int, size: int) -> None:
    """Give a file this size, and allocate its blocks."""
    _point("before allocate")
    os.posix_fallocate(fd, 0, size)
    _point("allocated")


def replace_file(path: Path, data: bytes, *, sync: bool = True, made_of: Path | None = None) -> None:
    """Replace the content of a file atomically: temporary file, fsync, rename, fsync of the directory.

    Without `sync`, it is atomic after a crash of the process, but not after a power failure. Use that for files that
    are checked when they are read. `made_of` is used as the temporary file, because its blocks are already allocated.
    It must be at least as large as the data.
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
    """Remove a file if it exists."""
    _point("before unlink")
    path.unlink(missing_ok=True)
    _point("unlinked")


def remove_directory(path: Path) -> None:
    _point("before rmdir")
    path.rmdir()


def _point(name: str) -> None:
    if fault is not None:
        fault(name)
