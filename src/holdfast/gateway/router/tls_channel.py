"""A channel with TLS, as the server of a client or as a client of Kafka.

Bytes are encrypted and decrypted in memory, so that the amount of work for one read is bounded. If OpenSSL itself read
the socket, it would continue for as long as a peer sends nothing but requests for new keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any, Final

from holdfast.broker.network.tls_context import error_reason
from holdfast.gateway.router.channel import Channel, ChannelUser

TLS_READ_BYTES: Final = 256 * 1024
"""At most this much is read and decrypted at a time: some hundred microseconds."""
CAUTIOUS_READ_BYTES: Final = 4096
"""The same from a peer that sends mostly TLS's own messages. Each takes as long as kilobytes of payload."""
MAX_UNSENT_BYTES: Final = 64 * 1024
"""Of TLS's own messages, which a peer that asks for them has to read."""


class TlsChannel(Channel):
    __slots__ = (
        "_early",
        "_incoming",
        "_is_server",
        "_mostly_payload",
        "_outgoing",
        "_ssl",
        "_unsent_answers",
        "is_established",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: socket.socket,
        user: ChannelUser,
        buffer: memoryview,
        context: ssl.SSLContext,
        server_hostname: str | None = None,
    ) -> None:
        """With a host name, the peer is a server with that name."""
        super().__init__(loop, peer, user, buffer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._is_server = server_hostname is None
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self._is_server, server_hostname=server_hostname
        )
        self._early: list[bytes] = []
        """Written before the handshake was complete."""
        self._mostly_payload = False
        self._unsent_answers = 0
        self.is_established = False

    def start(self) -> None:
        super().start()
        if not self._is_server:
            self._handshake()

    def _read_buffer(self) -> memoryview:
        return self._buffer[: TLS_READ_BYTES if self._mostly_payload else CAUTIOUS_READ_BYTES]

    def _arrived(self, data: memoryview) -> None:
        self._incoming.write(data)
        if not self.is_established and not self._handshake():
            return
        # The buffer is free again, and has room for everything that was read.
        size, is_end = self._decrypt()
        self._mostly_payload = 2 * size >= len(data)
        self._send_answers()
        if size:
            self._user.received(self._buffer[:size])
        if is_end and not self._closed and not self._failed:
            self.pause()
            self._user.ended()

    def _send_answers(self) -> None:
        """TLS's own messages. They must not pile up behind a response that the peer does not read."""
        size = self._outgoing.pending
        self._send_encrypted()
        self._unsent_answers = self._unsent_answers + size if self.unsent else 0
        if self._unsent_answers > MAX_UNSENT_BYTES:
            self._fail("it asks for new TLS keys and does not read the answers")

    def _decrypt(self) -> tuple[int, bool]:
        """The size of what the buffer now has, and whether the peer has ended the stream."""
        size = 0
        try:
            while True:
                room = self._buffer[size:]
                count: Any = self._ssl.read(len(room), room)  # Any: with a buffer it is a number
                if not count:
                    return size, True
                size += count
        except ssl.SSLWantReadError:
            return size, False
        except ssl.SSLZeroReturnError:
            return size, True
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert with the reason
            self._fail(f"what it sent cannot be decrypted: {error_reason(error)}")
            return 0, False

    def _handshake(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return False
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert with the reason
            self._fail(f"the TLS handshake failed: {error_reason(error)}")
            return False
        self.is_established = True
        self._send_encrypted()
        early, self._early = self._early, []
        for data in early:
            self.unsent -= len(data)
            self.write(data)
        if self._ends:
            self.write_end()
        if early and not self.unsent:
            self._loop.call_soon(self._report_drained)
        return True

    def _report_drained(self) -> None:
        if not self._closed and not self._failed and not self.unsent:
            self._user.drained()

    def write(self, data: memoryview | bytes) -> None:
        if self._closed or self._failed:
            return
        if not self.is_established:
            self._early.append(bytes(data))
            self.unsent += len(data)
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._ssl.write(view) :]
        except ssl.SSLError as error:
            self._fail(f"nothing can be sent to it: {error_reason(error)}")
        self._send_encrypted()

    def write_end(self) -> None:
        self._ends = True
        if self.is_established and not self._closed and not self._failed:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._send_encrypted()
            super().write_end()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending:
            super().write(self._outgoing.read())

    def _release(self) -> None:
        super()._release()
        self._early.clear()
        self.unsent = 0
