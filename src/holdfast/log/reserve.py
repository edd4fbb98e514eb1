"""Room that is kept on the disk for what has to be written to make room.

A deletion begins with a small file that is replaced: the list of topics, or where a log starts. On a disk that is full
not even that fits. So a file of some megabytes lies in the data directory; when there is no room, it is written into
and becomes the new file. It is not removed first, because whoever fills the disk would take its room at once. A new one
is made as soon as there is room for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

from holdfast.log import disk

RESERVE_FILE = "reserve"
# The list of forty thousand topics; where there is less room, what there is.
_SIZES = (4 * 1024 * 1024, 1024 * 1024, 256 * 1024, 64 * 1024)
RESERVE_BYTES = _SIZES[0]
_BLOCK_BYTES = 512  # what st_blocks counts, whatever the file system's own are
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """Of one data directory; for any worker thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RESERVE_FILE
        self._lock = threading.Lock()

    @property
    def room_bytes(self) -> int:
        try:
            # By its blocks: a file that was copied may have the size and no room behind it.
            found = self._path.stat()
            return min(found.st_size, found.st_blocks * _BLOCK_BYTES)
        except OSError:
            return 0

    def fill(self) -> None:
        """Make it as large as the disk has room for."""
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
            # Nobody needs it yet; the next time there may be room.
            with contextlib.suppress(OSError):
                disk.unlink(temporary)
            return False
        return True

    def give_up(self) -> None:
        """Leave its room to whoever comes first."""
        with self._lock, contextlib.suppress(OSError):
            disk.unlink(self._path)

    def replace_file(self, path: Path, data: bytes) -> None:
        """As :func:`disk.replace_file`; where there is no room, the reserve becomes the file."""
        try:
            disk.replace_file(path, data)
        except OSError as error:
            with self._lock:
                if error.errno not in _NO_ROOM or len(data) > self.room_bytes:
                    raise
                disk.replace_file(path, data, made_of=self._path)
            # The file that was replaced, and what the new one leaves of the reserve, may be as much again.
            self.fill()
