"""Segment files are opened when they are needed, and only a limited number stays open.

Ten thousand partitions have more segments than a process may have open files. A segment's file is therefore opened when
it is first read or written. When too many are open, one that was not used recently is closed; the next use opens it
again. The descriptor of an :class:`OpenFile` is valid as long as the object is referenced. A region that is being sent
holds a reference, so retention can unlink the segment and the log can be closed meanwhile.
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

# If more files than this are in use, they are closed and opened in turn, at about ten microseconds each.
_MAX_KEPT_OPEN: Final = 4096


class OpenFile:
    """A file descriptor, closed when it is no longer referenced."""

    __slots__ = ("__weakref__", "fd", "owner")

    def __init__(self, fd: int, owner: object = None) -> None:
        self.fd = fd
        self.owner = owner
        """Identifies the segment, also after its file was opened again."""

    def __del__(self) -> None:
        os.close(self.fd)


class SegmentFile:
    """The file of one segment. It is identified by its inode, because another file may get its name later."""

    __slots__ = ("__weakref__", "_inode", "_kept", "_seen", "is_used", "owner", "path")

    def __init__(self, path: Path, inode: int | None = None) -> None:
        """The existing file with this inode. Without an inode, the file is opened now, and created if missing."""
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
        """Only objects that hold it now keep it open."""
        self._kept = None

    def _open(self) -> OpenFile:
        opened = self._seen() if self._seen is not None else None
        if opened is None:
            opened = OpenFile(os.open(self.path, os.O_RDWR | os.O_CLOEXEC), self.owner)
            if os.fstat(opened.fd).st_ino != self._inode:
                # Compaction has replaced the file. Offsets and positions of the old one are not valid in the new one.
                raise FileNotFoundError(errno.ENOENT, "the file was replaced", str(self.path))
        self._keep(opened)
        return opened

    def _keep(self, opened: OpenFile) -> None:
        self._kept, self._seen, self.is_used = opened, ref(opened), True
        _kept_open.add(self)


class _KeptOpen:
    """The files that stay open, first in, first out. A file that was used since its last turn gets another turn."""

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
            self.limit = _MAX_KEPT_OPEN if allowed == resource.RLIM_INFINITY else min(_MAX_KEPT_OPEN, allowed // 2)
        return self.limit


_kept_open: Final = _KeptOpen()


def keep_open(limit: int) -> None:
    """The maximum number of files that stay open, besides those that are in use."""
    _kept_open.limit = limit
