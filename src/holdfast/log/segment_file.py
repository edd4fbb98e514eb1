"""Segment files are opened when they are needed, and only so many stay open.

Ten thousand partitions have more segments than a process may have open files. So a segment's file is opened by
whoever first reads or writes it, and when too many are open, one that nobody has used lately is let go; the next use
opens it again. Whoever holds an :class:`OpenFile` may use its descriptor for as long as that: it is closed when the
last holder is gone. A region under way to a socket holds one; so retention can unlink a segment, and the log can be
closed, while the bytes are still being sent.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import deque
from pathlib import Path
from typing import Final
from weakref import ref

from holdfast.log import disk

# More than this many in use at a time are opened anew in turns, which costs some ten microseconds each.
_MOST_KEPT_OPEN: Final = 4096


class OpenFile:
    """A file descriptor, closed when nobody holds it any more."""

    __slots__ = ("__weakref__", "fd", "owner")

    def __init__(self, fd: int, owner: object = None) -> None:
        self.fd = fd
        self.owner = owner
        """What tells one segment's files from another's, also after they were opened anew."""

    def __del__(self) -> None:
        os.close(self.fd)


class SegmentFile:
    """The file of one segment. It is known by its inode: what later has its name is another file."""

    __slots__ = ("__weakref__", "_inode", "_kept", "_seen", "is_used", "owner", "path")

    def __init__(self, path: Path, inode: int | None = None) -> None:
        """The file that was found there, with this inode; without one it is opened now, and created if missing."""
        self.path = path
        self.owner = object()
        self.is_used = False
        self._kept: OpenFile | None = None
        self._seen: ref[OpenFile] | None = None
        self._inode = inode
        if inode is None:
            opened = OpenFile(disk.create(path), self.owner)
            self._inode = os.fstat(opened.fd).st_ino
            self._keep(opened)

    def opened(self) -> OpenFile:
        """The file to read and write; FileNotFoundError when it was removed or replaced."""
        kept = self._kept
        if kept is None:
            return self._open()
        self.is_used = True
        return kept

    def let_go(self) -> None:
        """It stays open only for those who hold it now."""
        self._kept = None

    def _open(self) -> OpenFile:
        opened = self._seen() if self._seen is not None else None
        if opened is None:
            opened = OpenFile(os.open(self.path, os.O_RDWR | os.O_CLOEXEC), self.owner)
            if os.fstat(opened.fd).st_ino != self._inode:
                # Compaction has put another file in its place: offsets and positions of the old one mean nothing in it.
                raise FileNotFoundError(errno.ENOENT, "the file was replaced", str(self.path))
        self._keep(opened)
        return opened

    def _keep(self, opened: OpenFile) -> None:
        self._kept, self._seen, self.is_used = opened, ref(opened), True
        _kept_open.add(self)


class _KeptOpen:
    """The files that stay open, first in, first out; one that was used since its last turn gets another."""

    def __init__(self) -> None:
        self._files: deque[ref[SegmentFile]] = deque()
        self._lock = threading.Lock()
        self.limit: int | None = None

    def add(self, file: SegmentFile) -> None:
        with self._lock:
            self._files.append(ref(file))
            while len(self._files) > self._limit():
                oldest = self._files.popleft()
                found = oldest()
                if found is None:
                    continue
                if found.is_used and found is not file:
                    found.is_used = False
                    self._files.append(oldest)
                else:
                    found.let_go()

    def _limit(self) -> int:
        if self.limit is None:
            allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            # The other half is for connections.
            self.limit = _MOST_KEPT_OPEN if allowed == resource.RLIM_INFINITY else min(_MOST_KEPT_OPEN, allowed // 2)
        return self.limit


_kept_open: Final = _KeptOpen()


def keep_open(limit: int) -> None:
    """How many files stay open at most, beside those that somebody holds."""
    _kept_open.limit = limit
