"""A wire between clients and a broker that can be watched and cut.

The broker behind it must advertise the proxy's address: clients connect to where the metadata sends them.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
PRODUCE, FETCH = 0, 1

_REQUEST_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id


@dataclass(eq=False)
class _Link:
    """One client's connection and its twin to the broker."""

    client: socket.socket
    broker: socket.socket
    # correlation id -> (api key, when it was forwarded)
    unanswered: dict[int, tuple[int, float]] = field(default_factory=dict)

    def cut(self) -> None:
        for end in (self.client, self.broker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class TcpProxy:
    """Forwards whole Kafka frames on a port of the loopback."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._requests_seen: dict[int, int] = {}
        self._to_swallow: tuple[int, threading.Event] | None = None
        threading.Thread(target=self._accept, name="tcp-proxy", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    @property
    def bootstrap(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    def forward_to(self, address: tuple[str, int]) -> None:
        self._target = address

    def swallow_next_reply(self, api_key: int) -> threading.Event:
        """The next reply of this API is lost and its connection cut; the event tells that it has happened."""
        swallowed = threading.Event()
        with self._lock:
            self._to_swallow = (api_key, swallowed)
        return swallowed

    def requests_seen(self, api_key: int) -> int:
        """How many requests of this API have been forwarded so far."""
        with self._lock:
            return self._requests_seen.get(api_key, 0)

    def has_unanswered(self, api_key: int, since: float) -> bool:
        """Whether a request of this API, forwarded after ``since`` (monotonic seconds), is still unanswered."""
        with self._lock:
            return any(
                key == api_key and forwarded > since
                for link in self._links
                for key, forwarded in link.unanswered.values()
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            assert self._target is not None, "the proxy was never reported where to forward to"
            broker = socket.create_connection(self._target)
        except OSError:  # the broker is down: so is the wire
            client.close()
            return
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, broker)
        with self._lock:
            self._links.add(link)
        for pump in (self._forward_requests, self._forward_replies):
            threading.Thread(target=self._run, args=(link, pump), name="tcp-proxy-link", daemon=True).start()

    def _run(self, link: _Link, pump: Callable[[_Link], None]) -> None:
        with contextlib.suppress(OSError):
            pump(link)
        with self._lock:
            self._links.discard(link)
        link.cut()

    def _forward_requests(self, link: _Link) -> None:
        while frame := _read_frame(link.client):
            api_key, _, correlation_id = _REQUEST_HEAD.unpack_from(frame, 4)
            with self._lock:
                link.unanswered[correlation_id] = (api_key, time.monotonic())
                self._requests_seen[api_key] = self._requests_seen.get(api_key, 0) + 1
            link.broker.sendall(frame)

    def _forward_replies(self, link: _Link) -> None:
        while frame := _read_frame(link.broker):
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            with self._lock:
                api_key, _ = link.unanswered.pop(correlation_id, (None, 0.0))
                if self._to_swallow is not None and self._to_swallow[0] == api_key:
                    swallowed, self._to_swallow = self._to_swallow[1], None
                    swallowed.set()
                    return
            link.client.sendall(frame)


def _read_frame(source: socket.socket) -> bytes | None:
    """One frame with its length in front; None when the peer has closed."""
    head = _read_exactly(source, 4)
    if head is None:
        return None
    (size,) = struct.unpack(">i", head)
    body = _read_exactly(source, size)
    return None if body is None else head + body


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        chunk = source.recv(size - len(received))
        if not chunk:
            return None
        received += chunk
    return bytes(received)
