"""The load generator in C, against the echo server that it is used with."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.load import Load, send
from benchmarks.servers import EchoServer
from tests.unit.benchmarks.compiler import NEEDS_A_COMPILER

REPLY_BYTES = 131
FRAME = (20).to_bytes(4, "big") + bytes(20)

pytestmark = NEEDS_A_COMPILER


@pytest.fixture(scope="module")
def echo() -> Iterator[EchoServer]:
    with EchoServer(REPLY_BYTES) as server:
        yield server


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (50, 1), (3, 100)])
def test_sends_no_more_requests_than_asked_and_counts_each_reply(
    echo: EchoServer, connections: int, in_flight: int
) -> None:
    figures = send(Load(connections, in_flight, seconds=30, max_requests=5000), echo, FRAME, ordered=False)

    assert figures["requests"] == 5000
    assert figures["reply_bytes"] == REPLY_BYTES
    assert 0 < figures["p50_us"] <= figures["p99_us"]


def test_ends_when_its_time_is_over(echo: EchoServer) -> None:
    figures = send(Load(5, 1, seconds=0.2), echo, FRAME, ordered=False)

    assert 0.2 <= figures["seconds"] < 10
    assert figures["requests"] > 5


def test_a_reply_to_another_request_is_an_error(echo: EchoServer) -> None:
    # Given a server whose replies all carry the correlation id 0
    with pytest.raises(RuntimeError, match="another correlation id"):
        send(Load(1, 1, seconds=5, max_requests=10), echo, FRAME, ordered=True)


def test_a_reply_of_other_bytes_than_expected_is_an_error(echo: EchoServer) -> None:
    # Given a server whose replies hold nothing but zeros after the correlation id
    zeros = bytes(REPLY_BYTES - 4)

    figures = send(Load(2, 1, seconds=5, max_requests=10), echo, FRAME, ordered=False, expected=zeros)
    with pytest.raises(RuntimeError, match="other than the one expected"):
        send(Load(2, 1, seconds=5, max_requests=10), echo, FRAME, ordered=False, expected=zeros[:-1] + b"\x01")

    assert figures["requests"] == 10


def test_each_connection_repeats_its_own_frame() -> None:
    # Given a listener that keeps what its connections say, and answers nothing but the first request of each
    frames = [_frame(bytes([number]) * (10 + number)) for number in range(3)]
    with _Listener(connections=4) as listener:
        send(Load(4, 1, seconds=5, max_requests=4), listener, b"".join(frames), ordered=False)

    # Then there are as many different requests as frames, and the fourth connection began again with the first
    assert sorted(listener.heard) == sorted([*frames, frames[0]])


def _frame(body: bytes) -> bytes:
    """A request whose correlation id is zero."""
    return (8 + len(body)).to_bytes(4, "big") + bytes(8) + body


class _Listener:
    """A server in a thread of this process that answers ApiVersions and one request on each connection."""

    def __init__(self, connections: int) -> None:
        self.pid = os.getpid()
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(20)
        self.address: tuple[str, int] = self._socket.getsockname()
        self._thread = threading.Thread(target=self._serve, args=(connections,), daemon=True)

    def __enter__(self) -> "_Listener":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(20)
        self._socket.close()

    def _serve(self, connections: int) -> None:
        accepted = []
        for _ in range(connections):
            connection = self._socket.accept()[0]
            connection.recv(1024)  # ApiVersions, before the load
            connection.sendall((4).to_bytes(4, "big") + bytes(4))
            accepted.append(connection)
        for connection in accepted:
            self.heard.append(connection.recv(1024))
        for connection in accepted:
            connection.sendall((8).to_bytes(4, "big") + bytes(8))
        for connection in accepted:
            connection.recv(1)
            connection.close()
