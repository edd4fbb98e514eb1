"""Transfers bytes to and from one broker under deadlines, over TCP or TLS.

The socket never blocks. Every wait is a `poll` for both the socket and its `Waker`, so that another thread can end it.
Deadlines are times of the client's clock.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from holdfast.client.addresses import Address
from holdfast.client.clock import Clock
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost, RequestTimedOut

READ_BYTES: Final = 256 * 1024

R = TypeVar("R", bytes, int)


class Waker:
    """Lets any thread end the wait of the thread that uses a connection. Several calls count as one until it is
    taken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._pending = False

    def __del__(self) -> None:
        # Not earlier: as long as a reference exists, another thread may poll the descriptor.
        self._receiver.close()
        self._sender.close()

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wake(self) -> None:
        self._pending = True
        with contextlib.suppress(BlockingIOError):  # full of calls, of which one is enough
            self._sender.send(b"\0")

    def take(self) -> bool:
        """Whether there was a call since the last one taken."""
        pending, self._pending = self._pending, False
        return pending

    def drain(self) -> None:
        """Empties the descriptor; a call stays pending until it is taken."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass

    def wait(self, deadline: float) -> bool:
        """Waits for a call and takes it (True), or until the deadline (False)."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        while not self.take():
            if not self._clock.poll(poll, deadline) and self._clock.now() >= deadline:
                return False
            self.drain()
        return True


class Transport(Protocol):
    """Transfers bytes to and from one broker. One thread at a time may use it; any thread may set `closing` and then
    wake the waker."""

    closing: bool

    def connect(self, deadline: float, tls: ssl.SSLContext | None) -> None: ...

    def fileno(self) -> int:
        """For `poll`; -1 when closed."""

    @property
    def pending(self) -> bool:
        """Whether bytes have been received that `poll` does not see."""

    def read(self, deadline: float, *, wakeable: bool = False) -> bytes | None:
        """The bytes received, at least one. None at the deadline, or after a `wake` if `wakeable`."""

    def read_into(self, room: memoryview, deadline: float, *, wakeable: bool = False) -> int:
        """As `read`, into a buffer of the caller. Returns the number of bytes, or 0 instead of None."""

    def write(self, data: bytes, deadline: float) -> None:
        """All of it, or an exception. After an exception nothing more can be written, because part of it may have been
        sent."""

    def release(self) -> None:
        """Close the descriptor. No thread may use the transport at that time."""


OpenTransport = Callable[[Address, Waker, int, Clock], Transport]
"""Takes the address, the waker of the thread that will use it, the address family and the clock."""


class SocketTransport:
    def __init__(self, address: Address, waker: Waker, family: int, clock: Clock) -> None:
        self.address: Final = address
        self.closing = False
        self._waker = waker
        self._clock = clock
        self._family = family
        self._socket: socket.socket | None = None

    # -- connecting and closing ----------------------------------------------------------------------------------------

    def connect(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        """Tries every address of the name in turn. The duration of the name lookup depends on the resolver."""
        began = self._clock.now()
        self._socket = self._connected(deadline)
        if tls is not None:
            self._socket = tls.wrap_socket(
                self._socket, server_hostname=self.address.host, do_handshake_on_connect=False
            )
            self._handshake(self._socket, deadline, began)

    def fileno(self) -> int:
        return -1 if self.closing or self._socket is None else self._socket.fileno()

    @property
    def pending(self) -> bool:
        """TLS reads whole records from the socket, so decrypted bytes may remain unread."""
        held = self._socket
        return not self.closing and isinstance(held, ssl.SSLSocket) and held.pending() > 0

    def release(self) -> None:
        """Closes the descriptor. No thread may use the transport at that time."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def _connected(self, deadline: float) -> socket.socket:
        failures = []
        found = self._resolved()
        for number, (family, sockaddr) in enumerate(found):
            now = self._clock.now()
            # Leaves time for the next addresses if one drops packets.
            timeout_s = max(deadline - now, 0) / (len(found) - number)
            try:
                return self._connected_to(family, sockaddr, now + timeout_s)
            except OSError as failure:
                why = failure.strerror or str(failure)
            except RequestTimedOut:
                why = f"no answer within {timeout_s:.1f} s"
            failures.append(why if len(found) == 1 else f"{sockaddr[0]}: {why}")
        raise ConnectionFailed(f"{self.address}: cannot connect: {', '.join(failures)}")

    def _resolved(self) -> list[tuple[int, Any]]:
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, self._family, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as failure:
            raise ConnectionFailed(f"{self.address}: cannot look the name up: {failure}") from failure
        return [(family, sockaddr) for family, _, _, _, sockaddr in found]

    def _connected_to(self, family: int, sockaddr: Any, deadline: float) -> socket.socket:
        trying = socket.socket(family, socket.SOCK_STREAM)
        try:
            trying.setblocking(False)
            trying.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A parked join transfers nothing for minutes. With keepalive, the kernel detects a peer that has
            # disappeared.
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with contextlib.suppress(BlockingIOError):
                trying.connect(sockaddr)
            if not self._wait(trying, select.POLLOUT, deadline):
                raise RequestTimedOut(f"{self.address}: cannot connect in time")
            failed = trying.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
        except BaseException:
            trying.close()
            raise
        return trying

    def _handshake(self, shaking: ssl.SSLSocket, deadline: float, began: float) -> None:
        while True:
            try:
                return shaking.do_handshake()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except ssl.SSLCertVerificationError as failure:
                raise AuthenticationFailed(
                    f"{self.address}: the broker's certificate is not accepted: {failure.verify_message}; "
                    "see ssl.ca.location and ssl.endpoint.identification.algorithm"
                ) from failure
            except OSError as failure:
                raise self._handshake_error(failure) from failure
            if not self._wait(shaking, event, deadline):
                waited = self._clock.now() - began
                raise RequestTimedOut(f"{self.address}: connected, but no TLS handshake within {waited:.1f} s")

    def _handshake_error(self, failure: OSError) -> ConnectionFailed | AuthenticationFailed:
        if _is_alert(failure):
            return self._refused(failure)
        why = _reason(failure)
        return ConnectionFailed(f"{self.address}: the TLS handshake failed ({why}); does this listener speak TLS?")

    def _refused(self, failure: OSError) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self.address}: the broker ended TLS with {_reason(failure)}; "
            "see ssl.certificate.location, ssl.key.location and ssl.cipher.suites"
        )

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def read(self, deadline: float, *, wakeable: bool = False) -> bytes | None:
        """The received bytes, at least one. None at the deadline, or after a call of the waker if `wakeable`."""
        return self._read(lambda held: held.recv(READ_BYTES), deadline, wakeable)

    def read_into(self, room: memoryview, deadline: float, *, wakeable: bool = False) -> int:
        return self._read(lambda held: held.recv_into(room), deadline, wakeable) or 0

    def _read(self, receive: Callable[[socket.socket], R], deadline: float, wakeable: bool) -> R | None:
        while True:
            held = self._open()
            try:
                received = receive(held)
            except (BlockingIOError, ssl.SSLWantReadError):
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except OSError as failure:
                raise self._lost(failure) from failure
            else:
                if received:
                    return received
                raise ConnectionLost(f"{self.address}: closed by the broker")
            if not self._wait(held, event, deadline, wakeable=wakeable):
                return None

    def write(self, data: bytes, deadline: float) -> None:
        """All of it, or an exception. After an exception nothing more can be written, because part of it may have been
        sent."""
        left = memoryview(data)
        while left:
            held = self._open()
            try:
                left = left[held.send(left) :]
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                event = select.POLLOUT
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except OSError as failure:
                raise self._lost(self._alert(held) or failure) from failure
            if not self._wait(held, event, deadline):
                raise RequestTimedOut(f"{self.address}: the broker takes no more bytes; {len(left)} are still to go")

    def _alert(self, held: socket.socket) -> OSError | None:
        """Why the broker closed the connection, if its alert arrived before our write failed."""
        try:
            if isinstance(held, ssl.SSLSocket):
                held.recv(1)
        except OSError as failure:
            return failure if _is_alert(failure) else None
        return None

    def _lost(self, failure: OSError) -> ConnectionLost | AuthenticationFailed:
        # With TLS 1.3, a rejection of the client's certificate arrives only after the client's handshake is complete.
        if _is_alert(failure):
            return self._refused(failure)
        return ConnectionLost(f"{self.address}: the connection broke: {_reason(failure)}")

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _open(self) -> socket.socket:
        if self.closing or self._socket is None:
            raise self._closed_error()
        return self._socket

    def _closed_error(self) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: the connection has been closed by this client", retriable=False)

    def _wait(self, waited: socket.socket, event: int, deadline: float, *, wakeable: bool = False) -> bool:
        """Whether the socket is ready. False at the deadline, or after a call of the waker if `wakeable`."""
        poll = select.poll()
        poll.register(waited, event)
        poll.register(self._waker, select.POLLIN)
        while True:
            if self.closing:
                raise self._closed_error()
            if wakeable and self._waker.take():
                return False
            ready = {descriptor for descriptor, _ in self._clock.poll(poll, deadline)}
            if waited.fileno() in ready:
                return True
            if ready:
                self._waker.drain()
            elif self._clock.now() >= deadline:
                return False


def _is_alert(failure: OSError) -> bool:
    return isinstance(failure, ssl.SSLError) and "ALERT" in (failure.reason or "")


def _reason(failure: OSError) -> str:
    if isinstance(failure, ssl.SSLError) and failure.reason:
        return failure.reason.replace("_", " ").lower()
    return failure.strerror or str(failure)
