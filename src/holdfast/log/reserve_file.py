"""Disk space that is reserved for the writes that free space.

A deletion begins by replacing a small file: the list of topics, or the start offsets of logs. A full disk has no room
for that. The data directory therefore contains a reserve file of some megabytes. When the disk is full, the new content
is written into it, and it becomes the new file. It is not removed first, because another process that fills the disk
would take its space at once. A new reserve file is created as soon as there is room.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

from holdfast.log import disk

RESERVE_FILE = "reserve"
# Enough for the list of forty thousand topics; less if the disk has less room.
_SIZES = (4 * 1024 * 1024, 1024 * 1024, 256 * 1024, 64 * 1024)
RESERVE_BYTES = _SIZES[0]
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's block size is
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class ReserveFile:
    """The reserve file of one data directory. Any worker thread may use it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RESERVE_FILE
        self._lock = threading.Lock()

    @property
    def room_bytes(self) -> int:
        try:
            # By its blocks, because a copied file may have the size without allocated blocks.
            found = self._path.stat()
            return min(found.st_size, found.st_blocks * _BLOCK_BYTES)
        except OSError:
            return 0

    def fill(self) -> None:
        """Make it as large as the free space allows."""
        with self._lock:
            room_bytes = self.room_bytes
            for size in _SIZES:
                if size <= room_bytes or self._make(size):
                    return

    def _make(self, size: int) -> bool:
        temporary = self._path.with_name(RESERVE_FILE + ".tmp")
        try:
            fd = disk.create(temporary)
            try:
                disk.allocate(fd, size)
            finally:
                os.close(fd)
            disk.rename(temporary, self._path)
        except OSError:
            # It is not needed yet. The next call may find room.
            with contextlib.suppress(OSError):
                disk.unlink(temporary)
            return False
        return True

    def release(self) -> None:
        """Free its space."""
        with self._lock, contextlib.suppress(OSError):
            disk.unlink(self._path)

    def replace_file(self, path: Path, data: bytes) -> None:
        """As :func:`disk.replace_file`. If the disk is full, the reserve becomes the new file."""
        try:
            disk.replace_file(path, data)
        except OSError as error:
            with self._lock:
                if error.errno not in _NO_ROOM or len(data) > self.room_bytes:
                    raise
                disk.replace_file(path, data, made_of=self._path)
            # The replaced file and the rest of the reserve may have freed enough for a new one.
            self.fill()
