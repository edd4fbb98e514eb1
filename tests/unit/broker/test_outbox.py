"""Writing replies: in order, whole, from memory and from files, at the pace of the peer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.outbox import JOIN_BYTES, Outbox
from holdfast.log import FileRegion
from holdfast.log.segment_file import SegmentFile


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection, the first one not blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname(), timeout=10)
        ours, _ = listener.accept()
    ours.setblocking(False)
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with ours, peer:
        yield ours, peer


class Watch:
    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.failures: list[OSError] = []

    def outbox(self, ours: socket.socket) -> Outbox:
        return Outbox(asyncio.get_running_loop(), ours, self.drained.set, self.failures.append)


def region_of(path: Path, content: bytes) -> FileRegion:
    path.write_bytes(content)
    file = SegmentFile(path).opened()
    return FileRegion(file.fd, 0, len(content), file)


def read_exactly(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = peer.recv(size - len(received))
        assert chunk, f"closed after {len(received)} of {size} bytes"
        received += chunk
    return bytes(received)


def test_bytes_and_files_leave_in_the_order_they_were_added(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, peer = pair
    file_bytes = bytes(range(256)) * 1000

    async def scenario() -> bytes:
        outbox = Watch().outbox(ours)
        first, second = region_of(tmp_path / "a", file_bytes), region_of(tmp_path / "b", b"x")
        parts: list[bytes | FileRegion] = [b"head", first, b"between", b"", second, b"end"]
        outbox.add(parts, sum(map(len, parts)))
        reading = asyncio.create_task(asyncio.to_thread(read_exactly, peer, sum(map(len, parts))))
        outbox.flush()
        return await reading

    assert asyncio.run(scenario()) == b"head" + file_bytes + b"between" + b"x" + b"end"


def test_a_peer_that_does_not_read_blocks_the_outbox_and_loses_nothing(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, peer = pair
    content = bytes(range(251)) * 80_000  # more than both socket buffers hold

    async def scenario() -> bytes:
        watch = Watch()
        outbox = watch.outbox(ours)
        outbox.add([b"first", region_of(tmp_path / "big", content)], 5 + len(content))
        outbox.flush()
        assert outbox.blocked
        outbox.add([b"second"], 6)
        outbox.flush()
        received = await asyncio.to_thread(read_exactly, peer, 5 + len(content) + 6)
        await asyncio.wait_for(watch.drained.wait(), 10)
        assert not outbox.blocked
        return received

    assert asyncio.run(scenario()) == b"first" + content + b"second"


def test_a_deleted_file_is_still_sent_whole(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    ours, peer = pair
    content = b"kept" * 2_000_000

    async def scenario() -> bytes:
        outbox = Watch().outbox(ours)
        outbox.add([region_of(tmp_path / "segment", content)], len(content))
        (tmp_path / "segment").unlink()
        outbox.flush()
        return await asyncio.to_thread(read_exactly, peer, len(content))

    assert asyncio.run(scenario()) == content


def test_a_file_that_is_shorter_than_promised_fails_instead_of_hanging(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, _ = pair

    async def scenario() -> list[OSError]:
        watch = Watch()
        region = region_of(tmp_path / "cut", b"x" * 100)
        outbox = watch.outbox(ours)
        outbox.add([FileRegion(region.fd, 0, 200, region.file)], 200)
        outbox.flush()
        return watch.failures

    assert len(asyncio.run(scenario())) == 1


def test_a_peer_that_is_gone_fails_once(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = pair
    peer.close()

    async def scenario() -> list[OSError]:
        watch = Watch()
        outbox = watch.outbox(ours)
        deadline = time.monotonic() + 10
        while not watch.failures and time.monotonic() < deadline:
            outbox.add([b"anybody there?"], 14)
            outbox.flush()
            await asyncio.sleep(0)
        outbox.close()
        return watch.failures

    assert len(asyncio.run(scenario())) == 1


def test_the_last_bytes_are_not_held_back(pair: tuple[socket.socket, socket.socket]) -> None:
    # A reply whose last piece is empty: a Fetch v11 whose last partition has no news.
    ours, peer = pair
    reply = [b"x" * JOIN_BYTES, b"y" * (JOIN_BYTES - 1), b"z", b""]

    async def scenario() -> float:
        outbox = Watch().outbox(ours)
        began = time.monotonic()
        for _ in range(5):
            outbox.add(list(reply), sum(map(len, reply)))
            outbox.flush()
            await asyncio.to_thread(read_exactly, peer, sum(map(len, reply)))
        return time.monotonic() - began

    # The kernel holds corked bytes for 200 ms each time.
    assert asyncio.run(scenario()) < 0.5
