"""The load generator in C, against the echo server that it is used with."""

import shutil
from collections.abc import Iterator

import pytest

from bench.load import Load, send
from bench.servers import EchoServer

REPLY_BYTES = 131
FRAME = (20).to_bytes(4, "big") + bytes(20)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the load generator")


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
