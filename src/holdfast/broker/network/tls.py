"""TLS between the event loop's transport and a connection.

To the event loop a `TlsStream` is the protocol, to the connection it is the transport and the byte stream. Bytes are
encrypted and decrypted in memory, so all rules of a connection hold with TLS as well (which requests wait, how much
memory a half-received request may take), on either event loop, and an idle connection owns no buffer but OpenSSL's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from holdfast.broker.network.byte_stream import JOIN_BYTES, ByteSink, ByteStream, StreamUser
from holdfast.broker.network.environment import ConnectionEnvironment
from holdfast.broker.network.framing import CONTENDED_READ_BYTES, LARGE_READ
from holdfast.broker.network.tls_context import TlsContext, error_reason, principal_of
from holdfast.log import FileRegion

READ_BYTES: Final = LARGE_READ
"""At most this much is read and decrypted at a time, and CONTENDED_READ_BYTES from a peer that sends mostly TLS's own
messages: thousands of requests for new keys fit into what is usually read at once, and each takes as long as kilobytes
of records."""
MAX_UNSENT_BYTES: Final = 64 * 1024
"""Of TLS's own messages, which a peer that asks for them has to read."""
ENCRYPT_BYTES_PER_TURN: Final = 1024 * 1024
"""At most this much is encrypted for one peer before others are served: a millisecond or two."""


class TlsStream(asyncio.BufferedProtocol):
    __slots__ = (
        "_closed",
        "_decrypting",
        "_env",
        "_incoming",
        "_mostly_payload",
        "_outgoing",
        "_reading",
        "_ssl",
        "_transport",
        "_user",
        "_yielding",
        "is_established",
    )

    def __init__(
        self, env: ConnectionEnvironment, context: TlsContext, make_user: Callable[[ByteStream], StreamUser]
    ) -> None:
        self._env = env
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.ssl_context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established = False
        self._reading = True
        self._yielding = False
        self._closed = False
        self._decrypting = False
        self._mostly_payload = False
        """Whether the last read held more payload than TLS's own messages."""
        self._user = make_user(self)

    # -- the protocol of the event loop's transport --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._user.connection_made(cast(asyncio.BaseTransport, self))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the loop's wish; our buffers have their own sizes
        return self._env.scratch[: self._read_bytes]

    @property
    def _read_bytes(self) -> int:
        return READ_BYTES if self._mostly_payload and not self._env.memory.has_waiters else CONTENDED_READ_BYTES

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._env.scratch[:nbytes])
        if not self.is_established and not self._handshake():
            return
        had_room_for = self._read_bytes
        self._mostly_payload = 2 * self._decrypt() >= nbytes
        if nbytes >= had_room_for:
            self._yield_read()

    def eof_received(self) -> bool:
        if self.is_established:
            self._decrypt()  # requests that `resume_reading` has left for the next iteration
        return self._user.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._user.connection_lost(exc)

    # -- the connection's transport ------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._reading = False
        if not self._yielding:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if not self._yielding:
            self._transport.resume_reading()
        # What waits in memory. Not from here: we may be called by another connection, within its own read.
        asyncio.get_running_loop().call_soon(self._decrypt)

    def abort(self) -> None:
        self._closed = True
        self._transport.abort()

    def _yield_read(self) -> None:
        """libuv reads a socket up to 32 times while it keeps filling our buffer."""
        if self._reading and not self._yielding and not self._closed:
            self._yielding = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._yielding = False
        if self._reading and not self._closed:
            self._transport.resume_reading()

    # -- the connection's byte stream ----------------------------------------------------------------------------------

    def open_sink(self, peer: socket.socket) -> ByteSink:
        return TlsSink(peer, self._ssl, self._outgoing)

    def close_notify(self) -> None:
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._flush()

    def _flush(self) -> None:
        """Sends what TLS itself has to say."""
        if self._outgoing.pending:
            self._user.flush_stream()

    def _handshake(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert with the reason
            self._user.close(f"the TLS handshake failed: {error_reason(error)}")
            return False
        self._flush()
        self.is_established = True
        self._user.stream_established(principal_of(self._ssl.getpeercert()))
        return not self._closed

    def _decrypt(self) -> int:
        """Gives the connection what can be decrypted, as if it had been read from the socket; returns its size."""
        decrypted = 0
        if self._decrypting or self._closed:
            return decrypted
        user = self._user
        self._decrypting = True
        try:
            while self._reading and not self._closed:
                buffer = user.get_buffer(-1)
                count: Any = self._ssl.read(len(buffer), buffer)  # Any: with a buffer it is a number
                if not count:
                    self._on_close_notify()
                    break
                decrypted += count
                user.buffer_updated(count)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._on_close_notify()
        except ssl.SSLError as error:
            self._flush()
            user.close(f"what it sent cannot be decrypted: {error_reason(error)}")
        finally:
            self._decrypting = False
        if not self._closed:
            self._flush()
            if self._outgoing.pending > MAX_UNSENT_BYTES:
                user.close("it asks for new TLS keys and does not read the answers")
        return decrypted

    def _on_close_notify(self) -> None:
        if not self._user.eof_received():
            self._user.close(None)


class TlsSink:
    """Encrypts replies when the socket can take them, a piece at a time: a slow reader costs one piece."""

    __slots__ = ("_encrypted", "_outgoing", "_socket", "_ssl")

    def __init__(self, peer: socket.socket, encryption: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        self._socket = peer
        self._ssl = encryption
        self._outgoing = outgoing
        self._encrypted = memoryview(b"")

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, _data: bytes) -> int:
        """Nothing goes out as it is."""
        return 0

    def write(self, queue: deque[Any]) -> None:
        left = ENCRYPT_BYTES_PER_TURN
        while self._encrypted or queue or self._outgoing.pending:
            if not self._encrypted:
                if left <= 0:
                    raise BlockingIOError
                plaintext = _next_plaintext(queue)
                left -= len(plaintext)
                self._encrypt(plaintext)
            sent = self._socket.send(self._encrypted)
            self._encrypted = self._encrypted[sent:]

    def _encrypt(self, plaintext: memoryview) -> None:
        while plaintext:
            plaintext = plaintext[self._ssl.write(plaintext) :]
        self._encrypted = memoryview(self._outgoing.read())

    def close(self) -> None:
        self._encrypted = memoryview(b"")


def _next_plaintext(queue: deque[Any]) -> memoryview:
    """The next piece: several short parts, or the beginning of a long one."""
    if not queue:
        return memoryview(b"")
    part = queue.popleft()
    if isinstance(part, FileRegion):
        found = os.pread(part.fd, min(part.length, JOIN_BYTES), part.position)
        if not found:
            raise OSError("a log segment is shorter than its index says")
        if len(found) < part.length:
            rest = part.length - len(found)
            queue.appendleft(FileRegion(part.fd, part.position + len(found), rest, part.file))
        return memoryview(found)
    if len(part) > JOIN_BYTES:
        view = memoryview(part)
        queue.appendleft(view[JOIN_BYTES:])
        return view[:JOIN_BYTES]
    run, size = [part], len(part)
    while queue and not isinstance(queue[0], FileRegion) and size + len(queue[0]) <= JOIN_BYTES:
        size += len(queue[0])
        run.append(queue.popleft())
    return memoryview(b"".join(run))
