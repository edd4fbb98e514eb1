"""Writing replies: bytes by `send`, record batches from their file by `sendfile`.

The event loop's transport only reads. Replies are written here, on a duplicate of the socket, because neither loop
lets a file go to a socket without passing through memory and because a reply that the peer does not take must not
pile up in a transport's buffer. What cannot be written now waits, and the connection serves no further request until
it is gone: so a reader that never reads costs one reply.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from holdfast.log import FileRegion

JOIN_BYTES: Final = 64 * 1024
"""Pieces up to this size are joined into one system call; larger ones are not worth copying."""


SENDFILE_BYTES: Final = 4 * 1024 * 1024
"""At most this much of a file goes to one socket before the others have their turn, however fast its peer reads."""


class Outbox:
    __slots__ = (
        "_loop",
        "_on_drained",
        "_on_failed",
        "_on_progress",
        "_queue",
        "_send",
        "_socket",
        "blocked",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: socket.socket,
        on_drained: Callable[[], None],
        on_failed: Callable[[OSError], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._socket = peer
        self._send = peer.send
        self._on_drained = on_drained
        self._on_progress = on_progress
        self._on_failed = on_failed
        self._queue: deque[Any] = deque()
        self.blocked = False
        """The peer has not taken all that was written."""
        self.queued_bytes = 0

    def add(self, parts: list[Any], size: int) -> None:
        """Queues a reply of `size` bytes; `flush` sends it."""
        self._queue.extend(parts)
        self.queued_bytes += size

    def send(self, data: bytes) -> None:
        """A whole reply, at once: the usual case, on the shortest way."""
        if self.blocked or self._queue:
            self._queue.append(data)
            self.queued_bytes += len(data)
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close()
            self._on_failed(error)
            return
        if sent < len(data):
            self._queue.append(memoryview(data)[sent:])
            self.flush()

    def flush(self) -> None:
        """Writes as much as the socket takes, and goes on by itself when it takes more."""
        queue = self._queue
        if self.blocked or not queue:
            return
        self.queued_bytes = 0
        try:
            self._write()
        except BlockingIOError:
            self.blocked = True
            self._loop.add_writer(self._socket.fileno(), self._writable)
        except OSError as error:
            self.close()
            self._on_failed(error)

    def _writable(self) -> None:
        # The peer takes bytes, if slowly: it is not idle.
        self._on_progress()
        try:
            self._write()
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            self._on_failed(error)
            return
        self._disarm()
        self._on_drained()

    def _write(self) -> None:
        queue = self._queue
        budget = SENDFILE_BYTES
        while queue:
            part = queue.popleft()
            if isinstance(part, FileRegion):
                self._write_region(part, budget)
                budget -= part.length
            else:
                self._write_bytes(part)

    def _write_bytes(self, part: Any) -> None:
        queue = self._queue
        if queue and len(part) < JOIN_BYTES:
            run, size = [part], len(part)
            while queue and size < JOIN_BYTES and not isinstance(queue[0], FileRegion):
                size += len(queue[0])
                run.append(queue.popleft())
            part = b"".join(run)
        # More to come: let the kernel put the header and the file's first bytes into one packet.
        flags = socket.MSG_MORE if queue else 0
        try:
            sent = self._send(part, flags)
        except BlockingIOError:
            queue.appendleft(part)
            raise
        if sent < len(part):
            queue.appendleft(memoryview(part)[sent:])

    def _write_region(self, region: FileRegion, budget: int) -> None:
        position, left = region.position, region.length
        target = self._socket.fileno()
        try:
            while left:
                if budget <= 0:
                    raise BlockingIOError
                sent = os.sendfile(target, region.fd, position, min(left, budget))
                budget -= sent
                if sent == 0:
                    raise OSError("a log segment is shorter than its index says")
                position += sent
                left -= sent
        except BlockingIOError:
            self._queue.appendleft(FileRegion(region.fd, position, left, region.file))
            raise

    def _disarm(self) -> None:
        if self.blocked:
            self.blocked = False
            self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Lets go of the socket and of what was not written."""
        self._disarm()
        self._queue.clear()
