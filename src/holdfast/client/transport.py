"""Bytes to and from one broker under deadlines, over TCP or TLS.

The socket never blocks: whoever waits, waits in `poll` for the socket and for its `Waker` at once, so that another
thread can end any wait. Deadlines are points of `time.monotonic()`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from typing import Any, Final

from holdfast.client.addresses import Address
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost, RequestTimedOut

READ_BYTES: Final = 256 * 1024
_LONGEST_POLL_MS: Final = 60_000  # poll takes no more than 31 bits of milliseconds; longer waits go round again


class Waker:
    """Lets any thread end the wait of the thread that drives a connection. Calls add up to one until they are taken."""

    def __init__(self) -> None:
        self._heard, self._calls = socket.socketpair()
        self._heard.setblocking(False)
        self._calls.setblocking(False)
        self._pending = False

    def __del__(self) -> None:
        # Not sooner: as long as somebody can refer to this, somebody may be polling its descriptor.
        self._heard.close()
        self._calls.close()

    def fileno(self) -> int:
        return self._heard.fileno()

    def wake(self) -> None:
        self._pending = True
        with contextlib.suppress(BlockingIOError):  # full of calls: one of them is enough
            self._calls.send(b"\0")

    def take(self) -> bool:
        """Whether there was a call since the last one taken."""
        pending, self._pending = self._pending, False
        return pending

    def drain(self) -> None:
        """Quiets the descriptor; a call stays pending until it is taken."""
        with contextlib.suppress(BlockingIOError):
            while self._heard.recv(4096):
                pass

    def wait(self, deadline: float) -> bool:
        """Waits for a call and takes it: True. False when the deadline has come."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        while not self.take():
            if not poll.poll(_milliseconds_until(deadline)) and time.monotonic() >= deadline:
                return False
            self.drain()
        return True


class Transport:
    """One socket. Driven by one thread at a time; `closing` may be set by any, followed by a call of the waker."""

    def __init__(self, address: Address, waker: Waker, family: int = socket.AF_UNSPEC) -> None:
        self.address: Final = address
        self.closing = False
        self._waker = waker
        self._family = family
        self._socket: socket.socket | None = None

    # -- coming up and going down --------------------------------------------------------------------------------------

    def connect(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        """Tries every address of the name in turn. Looking the name up takes as long as the resolver lets it."""
        began = time.monotonic()
        self._socket = self._connected(deadline)
        if tls is not None:
            self._socket = tls.wrap_socket(
                self._socket, server_hostname=self.address.host, do_handshake_on_connect=False
            )
            self._shake_hands(self._socket, deadline, began)

    def fileno(self) -> int:
        return -1 if self.closing or self._socket is None else self._socket.fileno()

    @property
    def pending(self) -> bool:
        """TLS takes whole records from the socket: what it decrypted and nobody read yet."""
        held = self._socket
        return not self.closing and isinstance(held, ssl.SSLSocket) and held.pending() > 0

    def release(self) -> None:
        """Gives the descriptor back. Only when no thread is inside."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    def _connected(self, deadline: float) -> socket.socket:
        failures = []
        found = self._resolved()
        for number, (family, sockaddr) in enumerate(found):
            now = time.monotonic()
            # A share for each: an address that swallows packets must not eat the time of those after it.
            share = max(deadline - now, 0) / (len(found) - number)
            try:
                return self._connected_to(family, sockaddr, now + share)
            except OSError as failure:
                why = failure.strerror or str(failure)
            except RequestTimedOut:
                why = f"no answer within {share:.1f} s"
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
            # A parked join sends nothing for minutes: the kernel notices a peer that is gone without a word.
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

    def _shake_hands(self, shaking: ssl.SSLSocket, deadline: float, began: float) -> None:
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
                raise self._no_tls(failure) from failure
            if not self._wait(shaking, event, deadline):
                waited = time.monotonic() - began
                raise RequestTimedOut(f"{self.address}: connected, but no TLS handshake within {waited:.1f} s")

    def _no_tls(self, failure: OSError) -> ConnectionFailed | AuthenticationFailed:
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
        """What has come, at least one byte. None when the deadline has, or a call of the waker if that counts."""
        while True:
            held = self._open()
            try:
                data = held.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except OSError as failure:
                raise self._lost(failure) from failure
            else:
                if data:
                    return data
                raise ConnectionLost(f"{self.address}: closed by the broker")
            if not self._wait(held, event, deadline, wakeable=wakeable):
                return None

    def write(self, data: bytes, deadline: float) -> None:
        """All of it, or an exception after which nothing more can be written: a part of it may have gone."""
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
        """Why the broker broke off, if it said so: its last words may have come before we were cut off in ours."""
        try:
            if isinstance(held, ssl.SSLSocket):
                held.recv(1)
        except OSError as failure:
            return failure if _is_alert(failure) else None
        return None

    def _lost(self, failure: OSError) -> ConnectionLost | AuthenticationFailed:
        # With TLS 1.3 a broker refuses our certificate only after the handshake, as far as we can see.
        if _is_alert(failure):
            return self._refused(failure)
        return ConnectionLost(f"{self.address}: the connection broke: {_reason(failure)}")

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _open(self) -> socket.socket:
        if self.closing or self._socket is None:
            raise self._given_up()
        return self._socket

    def _given_up(self) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: the connection has been closed by this client", retriable=False)

    def _wait(self, waited: socket.socket, event: int, deadline: float, *, wakeable: bool = False) -> bool:
        """Whether the socket is ready. If not: the deadline has come, or a call of the waker if that counts."""
        poll = select.poll()
        poll.register(waited, event)
        poll.register(self._waker, select.POLLIN)
        while True:
            if self.closing:
                raise self._given_up()
            if wakeable and self._waker.take():
                return False
            ready = {descriptor for descriptor, _ in poll.poll(_milliseconds_until(deadline))}
            if waited.fileno() in ready:
                return True
            if ready:
                self._waker.drain()
            elif time.monotonic() >= deadline:
                return False


def _milliseconds_until(deadline: float) -> int:
    left = deadline - time.monotonic()
    return min(max(0, int(left * 1000) + 1), _LONGEST_POLL_MS) if left > 0 else 0


def _is_alert(failure: OSError) -> bool:
    return isinstance(failure, ssl.SSLError) and "ALERT" in (failure.reason or "")


def _reason(failure: OSError) -> str:
    if isinstance(failure, ssl.SSLError) and failure.reason:
        return failure.reason.replace("_", " ").lower()
    return failure.strerror or str(failure)
