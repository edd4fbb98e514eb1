"""The layer between a connection and its socket: plain bytes here, TLS in `tls.py`.

A connection reads requests from it and writes replies to it, and does not depend on how the layer encodes them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from holdfast.log import FileRegion

JOIN_BYTES: Final = 64 * 1024
"""Pieces up to this size are joined into one system call. Copying larger ones costs more than it saves."""

SENDFILE_BYTES: Final = 4 * 1024 * 1024
"""At most this much of a file is sent to one peer at a time, however fast it reads, so that other peers are served."""


class ByteSink(Protocol):
    """Where replies are written to."""

    @property
    def send(self) -> Callable[[bytes], int]:
        """Sends a reply and returns how many bytes were sent; `write` sends the rest.

        An attribute rather than a method, so that it can be the socket's own.
        """

    def write(self, queue: deque[Any]) -> None:
        """Sends the parts in the queue: bytes, and regions of files.

        Raises BlockingIOError if not all of it could be sent now. The queue then holds the rest, and `fileno` becomes
        writable when more can be.
        """

    def fileno(self) -> int: ...

    def close(self) -> None:
        """Releases unsent data. The owner closes the socket."""


class ByteStream(Protocol):
    @property
    def is_established(self) -> bool:
        """False during a handshake, when no request can have arrived yet."""

    def open_sink(self, peer: socket.socket) -> ByteSink: ...

    def close_notify(self) -> None:
        """Tells the peer that the connection is about to be closed."""


class StreamUser(Protocol):
    """What a byte stream calls: the methods of asyncio's buffered protocols, and some for a stream such as TLS."""

    @property
    def get_buffer(self) -> Callable[[int], memoryview]:
        """An attribute rather than a method, so that it can be that of the reader."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool:
        """Whether the connection stays open."""

    def connection_lost(self, exc: Exception | None) -> None: ...

    def stream_established(self, principal: str | None) -> None:
        """The handshake is over; the principal is that of the client's certificate, if it has sent one."""

    def flush_stream(self) -> None:
        """The stream has something of its own to send."""

    def close(self, reason: str | None) -> None:
        """The connection is of no more use; the reason is for the log."""


class PlainStream:
    """A stream without encryption: only the socket."""

    is_established: Final = True

    def open_sink(self, peer: socket.socket) -> ByteSink:
        return PlainSink(peer)

    def close_notify(self) -> None:
        """Not needed, because closing the TCP connection tells the peer."""


class PlainSink:
    """Bytes by `send`, record batches from their file by `sendfile`."""

    __slots__ = ("_socket", "send")

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self.send: Callable[[bytes], int] = peer.send

    def fileno(self) -> int:
        return self._socket.fileno()

    def write(self, queue: deque[Any]) -> None:
        budget = SENDFILE_BYTES
        while queue:
            part = queue.popleft()
            if isinstance(part, FileRegion):
                self._write_region(queue, part, budget)
                budget -= part.length
            else:
                self._write_bytes(queue, part)

    def _write_bytes(self, queue: deque[Any], part: Any) -> None:
        if queue and len(part) < JOIN_BYTES:
            run, size = [part], len(part)
            while queue and size < JOIN_BYTES and not isinstance(queue[0], FileRegion):
                size += len(queue[0])
                run.append(queue.popleft())
            part = b"".join(run)
        # More data follows. The kernel puts the header and the file's first bytes into one packet.
        flags = socket.MSG_MORE if queue else 0
        try:
            sent = self._socket.send(part, flags)
        except BlockingIOError:
            queue.appendleft(part)
            raise
        if sent < len(part):
            queue.appendleft(memoryview(part)[sent:])

    def _write_region(self, queue: deque[Any], region: FileRegion, budget: int) -> None:
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
            queue.appendleft(FileRegion(region.fd, position, left, region.file))
            raise

    def close(self) -> None:
        """There is nothing to release."""
