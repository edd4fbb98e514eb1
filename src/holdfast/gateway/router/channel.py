"""A socket of the router, towards a client or towards Kafka.

All channels read into one buffer: what was read is sent on before the next read, and only what the other socket does
not take is copied and kept. This costs less CPU time than the event loop's transports. `splice` would cost a third less
again, but it needs a pipe of a megabyte for each connection, and cannot be used with TLS. While a channel has unsent
data, its user must not read what would be written to it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Final, Protocol

READ_BYTES: Final = 1024 * 1024
"""At most this much is read at a time, and so at most this much is kept for a peer that reads slowly. With 256 KiB, a
gigabyte costs 15 percent more CPU time."""

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
"""A peer that has vanished, such as a broker whose host lost power, is noticed after two minutes."""


class ChannelUser(Protocol):
    """What a channel calls; never from within a call of its user, except `received` and those that follow from it."""

    def received(self, data: memoryview) -> None:
        """The data is valid during the call only."""

    def ended(self) -> None:
        """The peer sends nothing more. It may still read."""

    def drained(self) -> None:
        """All unsent data has been sent."""

    def lost(self, reason: str) -> None:
        """The connection is broken. Called once, and not after `close`."""


class Channel:
    __slots__ = (
        "_buffer",
        "_closed",
        "_ends",
        "_failed",
        "_loop",
        "_queue",
        "_reading",
        "_socket",
        "_user",
        "_was_reset",
        "progress",
        "unsent",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, peer: socket.socket, user: ChannelUser, buffer: memoryview
    ) -> None:
        self._loop = loop
        self._socket = peer
        self._user = user
        self._buffer = buffer
        self._queue: deque[memoryview] = deque()
        self._reading = False
        self._ends = False
        self._failed = False
        self._was_reset = False
        self._closed = False
        self.unsent = 0
        """Bytes that the socket has not taken yet."""
        self.progress = 0
        """Grows whenever the peer has taken unsent data."""
        _configure(peer)

    def start(self) -> None:
        self.resume()

    # -- reading -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        if not self._reading and not self._closed and not self._failed:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            count = self._socket.recv_into(self._read_buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        if count:
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._watch_again()
            self._arrived(self._buffer[:count])
        elif self._was_reset:
            self._fail("Connection reset by peer")
        else:
            self.pause()
            self._user.ended()

    def _watch_again(self) -> None:
        """The peer has reset the connection. libuv then stops watching the socket, but there may be more to read."""
        self._was_reset = True
        self.pause()
        self.resume()

    def _read_buffer(self) -> memoryview:
        return self._buffer

    def _arrived(self, data: memoryview) -> None:
        self._user.received(data)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, data: memoryview | bytes) -> None:
        """Sends the data at once, as far as possible; the rest is copied."""
        if self._closed or self._failed:
            return
        sent = 0
        if not self._queue:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._fail(error.strerror or str(error))
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._socket.fileno(), self._writable)
        rest = memoryview(bytes(memoryview(data)[sent:]))
        self._queue.append(rest)
        self.unsent += len(rest)

    def write_end(self) -> None:
        """Tells the peer that nothing more will be sent, after all unsent data."""
        self._ends = True
        if not self._queue:
            self._shut_down()

    def _shut_down(self) -> None:
        if not self._closed and not self._failed:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._fail(error.strerror or str(error))

    def _writable(self) -> None:
        queue = self._queue
        try:
            while queue:
                sent = self._socket.send(queue[0])
                self.unsent -= sent
                self.progress += 1
                if sent < len(queue[0]):
                    queue[0] = queue[0][sent:]
                    return
                queue.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._loop.remove_writer(self._socket.fileno())
        if self._ends:
            self._shut_down()
        if not self.unsent:
            self._user.drained()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        """Not reported from here, because we may have been called by the user."""
        if not self._failed and not self._closed:
            self._failed = True
            self._release()
            self._loop.call_soon(self._report, reason)

    def _report(self, reason: str) -> None:
        if not self._closed:
            self._user.lost(reason)

    def _release(self) -> None:
        self.pause()
        if self._queue:
            self._loop.remove_writer(self._socket.fileno())
            self._queue.clear()
            self.unsent = 0

    def close(self) -> None:
        """Unsent data is lost."""
        if not self._closed:
            self._release()
            self._closed = True
            self._socket.close()


def _configure(peer: socket.socket) -> None:
    peer.setblocking(False)
    try:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            option = getattr(socket, name, None)  # not on every system
            if option is not None:
                peer.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError:
        return  # the peer is gone already; the next read says so
