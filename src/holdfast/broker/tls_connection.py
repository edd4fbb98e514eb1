"""A connection behind TLS, and its replies.

The bytes are sealed and opened in memory, between the socket and the connection that it would be without TLS: all its
rules hold (who waits for whom, what memory a half-received request may take), on either event loop, and an idle
connection owns no buffer but OpenSSL's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.connection import LARGE_READ, Connection
from holdfast.broker.framing import CROWDED_BYTES
from holdfast.broker.outbox import JOIN_BYTES, Outbox
from holdfast.broker.security.tls import principal_of, reason_of
from holdfast.log import FileRegion

if TYPE_CHECKING:
    from holdfast.broker.doors import Door
    from holdfast.broker.server import Broker

READ_BYTES: Final = LARGE_READ
"""At most this much is read and opened at a time, and CROWDED_BYTES of a peer that mostly speaks of TLS itself:
thousands of requests for new keys fit into what is usually read at once, and each takes as long as kilobytes of
records."""
MOST_UNSENT_BYTES: Final = 64 * 1024
"""Of TLS's own answers, which a peer that asks for them has to read."""
TURN_BYTES: Final = 1024 * 1024
"""At most this much is sealed for one peer before the others have their turn: a millisecond or two."""


class TlsConnection(Connection):
    __slots__ = ("_incoming", "_is_telling", "_opening", "_outgoing", "_shaking_hands", "_ssl")

    def __init__(self, broker: Broker, door: Door) -> None:
        assert door.tls is not None
        super().__init__(broker, door)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = door.tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaking_hands = True
        self._opening = False
        self._is_telling = False
        """Whether the last read held more of what is meant for us than of TLS's own."""

    @property
    def is_stranger(self) -> bool:
        return self._shaking_hands or super().is_stranger

    def _make_outbox(self) -> Outbox:
        return TlsOutbox(self, self._ssl, self._outgoing)

    # -- from the socket -----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the loop's wish; our buffers have their own sizes
        return self._broker.scratch[: self._read_bytes]

    @property
    def _read_bytes(self) -> int:
        return READ_BYTES if self._is_telling and not self._broker.memory.crowded else CROWDED_BYTES

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._broker.scratch[:nbytes])
        if self._shaking_hands and not self._shake_hands():
            return
        had_room_for, before = self._read_bytes, self.received_bytes
        self._open()
        self._is_telling = 2 * (self.received_bytes - before) >= nbytes
        if nbytes >= had_room_for:
            self._let_others_read()

    def _shake_hands(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._outbox.send_sealed()
            return False
        except ssl.SSLError as error:
            self._outbox.send_sealed()  # the alert that tells the client why
            self.close(f"the TLS handshake failed: {reason_of(error)}")
            return False
        self._outbox.send_sealed()
        self._shaking_hands = False
        if not self._door.mechanisms:
            self.authenticated(principal_of(self._ssl.getpeercert()))
        return not self._closed

    def _open(self) -> None:
        """Gives on what can be opened, as if it had been read from the socket."""
        if self._opening or self._closed:
            return
        self._opening = True
        try:
            while self._reading and not self._closed:
                buffer = self._reader.buffer()
                count: Any = self._ssl.read(len(buffer), buffer)  # Any: with a buffer it is a number
                if not count:
                    self._hear_goodbye()
                    break
                super().buffer_updated(count)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._hear_goodbye()
        except ssl.SSLError as error:
            self._outbox.send_sealed()
            self.close(f"what it sent cannot be decrypted: {reason_of(error)}")
        finally:
            self._opening = False
        if not self._closed:
            self._outbox.send_sealed()  # TLS itself may have something to say: new keys
            if self._outgoing.pending > MOST_UNSENT_BYTES:
                self.close("it asks for new TLS keys and does not read the answers")

    def _hear_goodbye(self) -> None:
        if not self.eof_received():
            self.close(None)

    def _resume_reading(self) -> None:
        was_reading = self._reading
        super()._resume_reading()
        if self._reading and not was_reading:
            # What waited in memory. Not from here: we may be called by another connection, within its own read.
            asyncio.get_running_loop().call_soon(self._open)

    def _say_goodbye(self) -> None:
        if not self._shaking_hands:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._outbox.send_sealed()


class TlsOutbox(Outbox):
    """Replies are sealed when the socket can take them, a piece at a time: a slow reader costs one piece."""

    __slots__ = ("_outgoing", "_sealed", "_ssl")

    def __init__(self, connection: TlsConnection, sealing: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            connection._socket,
            connection._drained,
            connection._write_failed,
            connection._progressed,
        )
        self._ssl = sealing
        self._outgoing = outgoing
        self._sealed = memoryview(b"")

    def send(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued_bytes += len(data)
        self.flush()

    def send_sealed(self) -> None:
        """What TLS itself has to say. While the peer takes nothing it waits, and goes before the next reply."""
        if self._outgoing.pending and not self.blocked:
            self._queue.appendleft(b"")
            self.flush()

    def _write(self) -> None:
        left = TURN_BYTES
        while self._sealed or self._queue or self._outgoing.pending:
            if not self._sealed:
                if left <= 0:
                    raise BlockingIOError
                plain = self._next_plain()
                left -= len(plain)
                self._seal(plain)
            sent = self._send(self._sealed)
            self._sealed = self._sealed[sent:]

    def _seal(self, plain: memoryview) -> None:
        while plain:
            plain = plain[self._ssl.write(plain) :]
        self._sealed = memoryview(self._outgoing.read())

    def _next_plain(self) -> memoryview:
        queue = self._queue
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

    def close(self) -> None:
        self._sealed = memoryview(b"")
        super().close()
