"""A server that does what a test wrote down, on a port of the loopback."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from holdfast.client.addresses import Address
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.headers import decode_request_header, encode_response_parts
from holdfast.wire.message import APIS, Api, decode

HOST = "127.0.0.1"
PATIENCE_S = 20.0

Script = Callable[["Peer"], None]


@dataclass(frozen=True)
class Request:
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


class Peer:
    """One client, as the server sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(PATIENCE_S)

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def request(self) -> Request:
        frame = self.frame()
        api_key, version, correlation_id, client_id, position = decode_request_header(frame)
        api = APIS[api_key]
        return Request(api, version, correlation_id, client_id, decode(api.request, version, frame, position))

    def answer(self, request: Request, response: Any) -> None:
        parts: list[Any] = encode_response_parts(response, request.version, request.correlation_id)
        self.socket.sendall(b"".join(parts))

    def answer_api_versions(self, ranges: Mapping[int, tuple[int, int]] | None = None) -> Request:
        """Everything that Holdfast knows, but for the ranges given by API key."""
        request = self.request()
        assert request.api is API_VERSIONS
        offered = {key: api.versions for key, api in APIS.items()} | dict(ranges or {})
        keys = [ApiVersion(key, lowest, highest) for key, (lowest, highest) in offered.items()]
        self.answer(request, ApiVersionsResponse(api_keys=keys))
        return request

    def expect_end(self) -> None:
        """Waits until the client has closed."""
        with contextlib.suppress(ConnectionError):
            assert self.socket.recv(1) == b"", "the client said something more"

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError(f"closed by the client after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)


class ScriptedServer:
    """Each connection gets the next script, the last one again and again. What a script raises, leaving raises."""

    def __init__(self, *scripts: Script, family: int = socket.AF_INET) -> None:
        host = "::1" if family == socket.AF_INET6 else HOST
        self._listener = socket.create_server((host, 0), family=family)
        self._scripts = list(scripts)
        self._failures: list[Exception] = []
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.connections = 0
        self.address = Address(*self._listener.getsockname()[:2])
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a script did not end"
        for failure in self._failures:
            if error is None:
                raise failure
            error.add_note(f"and the scripted server failed: {failure!r}")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                script = self._scripts[min(self.connections, len(self._scripts) - 1)]
                self.connections += 1
                self._peers.append(connection)
                thread = threading.Thread(target=self._play, args=(script, connection), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _play(self, script: Script, connection: socket.socket) -> None:
        with connection:
            try:
                script(Peer(connection))
            except ConnectionError:
                pass  # the client went first, or the test is over
            except Exception as failure:  # noqa: BLE001  # raised again when the server is left
                self._failures.append(failure)


def silent(peer: Peer) -> None:
    """Takes everything and says nothing: half open, or a firewall."""
    with contextlib.suppress(OSError):
        while peer.socket.recv(4096):
            pass


def unused_address() -> Address:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return Address(*probe.getsockname())
