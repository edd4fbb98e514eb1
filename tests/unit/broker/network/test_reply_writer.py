"""Writing replies: in order, whole, from memory and from files, at the pace of the peer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.network.byte_stream import JOIN_BYTES, PlainSink
from holdfast.broker.network.reply_writer import FLUSH_BYTES, MAX_DUE, ReplyRound, ReplyWriter
from holdfast.log import FileRegion
from holdfast.log.segment_file import SegmentFile


class CountingSocket(socket.socket):
    """Counts the system calls that send bytes."""

    sends = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
        self.sends += 1
        return super().send(data, flags)


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
        self.failures: list[Exception] = []

    def outbox(self, ours: socket.socket) -> ReplyWriter:
        return self.writer(PlainSink(ours), ReplyRound())

    def writer(self, sink: PlainSink, replies: ReplyRound) -> ReplyWriter:
        return ReplyWriter(asyncio.get_running_loop(), sink, replies, self.drained.set, self.failures.append)


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
        outbox.send_parts(parts, sum(map(len, parts)))
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
        outbox.send_parts([b"first", region_of(tmp_path / "big", content)], 5 + len(content))
        outbox.flush()
        assert outbox.blocked
        outbox.send(b"second")
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
        outbox.send_parts([region_of(tmp_path / "segment", content)], len(content))
        (tmp_path / "segment").unlink()
        outbox.flush()
        return await asyncio.to_thread(read_exactly, peer, len(content))

    assert asyncio.run(scenario()) == content


def test_a_file_that_is_shorter_than_promised_fails_instead_of_hanging(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, _ = pair

    async def scenario() -> list[Exception]:
        watch = Watch()
        region = region_of(tmp_path / "cut", b"x" * 100)
        outbox = watch.outbox(ours)
        outbox.send_parts([FileRegion(region.fd, 0, 200, region.file)], 200)
        outbox.flush()
        return watch.failures

    assert len(asyncio.run(scenario())) == 1


def test_a_peer_that_is_gone_fails_once(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = pair
    peer.close()

    async def scenario() -> list[Exception]:
        watch = Watch()
        outbox = watch.outbox(ours)
        deadline = time.monotonic() + 10
        while not watch.failures and time.monotonic() < deadline:
            outbox.send_parts([b"anybody there?"], 14)
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
            outbox.send_parts(list(reply), sum(map(len, reply)))
            outbox.flush()
            await asyncio.to_thread(read_exactly, peer, sum(map(len, reply)))
        return time.monotonic() - began

    # The kernel holds corked bytes for 200 ms each time.
    assert asyncio.run(scenario()) < 0.5


@pytest.fixture
def counted(pair: tuple[socket.socket, socket.socket]) -> Iterator[tuple[CountingSocket, socket.socket]]:
    ours, peer = pair
    with CountingSocket(fileno=socket.dup(ours.fileno())) as counting:
        counting.setblocking(False)
        yield counting, peer


def test_replies_of_one_iteration_leave_in_one_system_call(counted: tuple[CountingSocket, socket.socket]) -> None:
    ours, peer = counted

    async def scenario() -> bytes:
        outbox = Watch().outbox(ours)
        for reply in (b"first", b"second", b"third"):
            outbox.send(reply)
        assert (ours.sends, outbox.has_unsent) == (0, True), "nothing leaves before the end of the iteration"
        await asyncio.sleep(0)
        assert (ours.sends, outbox.has_unsent) == (1, False)
        outbox.send(b"fourth")
        await asyncio.sleep(0)
        assert ours.sends == 2, "the control: the replies of two iterations leave in two"
        return await asyncio.to_thread(read_exactly, peer, 22)

    assert asyncio.run(scenario()) == b"firstsecondthirdfourth"


def test_a_large_reply_leaves_at_once_behind_those_before_it(counted: tuple[CountingSocket, socket.socket]) -> None:
    ours, peer = counted

    async def scenario() -> bytes:
        outbox = Watch().outbox(ours)
        outbox.send(b"small")
        assert ours.sends == 0
        outbox.send_parts([bytes(FLUSH_BYTES)], FLUSH_BYTES)
        assert ours.sends > 0, "as much as that does not wait in memory"
        return await asyncio.to_thread(read_exactly, peer, 5 + FLUSH_BYTES)

    assert asyncio.run(scenario()) == b"small" + bytes(FLUSH_BYTES)


def test_replies_behind_a_blocked_one_wait_for_the_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = pair
    content = bytes(range(251)) * 80_000

    async def scenario() -> bytes:
        watch = Watch()
        outbox = watch.outbox(ours)
        outbox.send_parts([content], len(content))
        assert outbox.blocked
        outbox.send(b"second")
        await asyncio.sleep(0)
        assert outbox.has_unsent
        received = await asyncio.to_thread(read_exactly, peer, len(content) + 6)
        await asyncio.wait_for(watch.drained.wait(), 10)
        assert not outbox.has_unsent
        return received

    assert asyncio.run(scenario()) == content + b"second"


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TypeError("a defect")], ids=["network", "defect"])
def test_a_connection_that_fails_takes_no_reply_from_the_others(
    pair: tuple[socket.socket, socket.socket], error: Exception
) -> None:
    ours, peer = pair

    class FailingSink(PlainSink):
        def __init__(self, peer: socket.socket) -> None:
            super().__init__(peer)
            self.send = self._fail

        def _fail(self, _data: bytes) -> int:
            raise error

    async def scenario() -> None:
        replies, watches = ReplyRound(), [Watch() for _ in range(3)]
        sinks = [PlainSink(ours), FailingSink(ours), PlainSink(ours)]
        outboxes = [watch.writer(sink, replies) for watch, sink in zip(watches, sinks, strict=True)]
        for outbox in outboxes:
            outbox.send(b"reply")

        await asyncio.sleep(0)

        assert await asyncio.to_thread(read_exactly, peer, 10) == b"replyreply"
        assert [watch.failures for watch in watches] == [[], [error], []]
        assert not outboxes[1].has_unsent

    asyncio.run(scenario())


def test_a_closed_connection_sends_nothing_at_the_end_of_the_iteration(
    counted: tuple[CountingSocket, socket.socket],
) -> None:
    ours, _ = counted

    async def scenario() -> None:
        outbox = Watch().outbox(ours)
        outbox.send(b"too late")
        outbox.close()
        await asyncio.sleep(0)
        assert ours.sends == 0

    asyncio.run(scenario())


# -- rounds ------------------------------------------------------------------------------------------------------------


class NotingSink(PlainSink):
    """Notes which connection sends; nothing is sent."""

    def __init__(self, name: int, sent: list[int]) -> None:
        self.send = self._note
        self._name = name
        self._sent = sent

    def _note(self, data: bytes) -> int:
        self._sent.append(self._name)
        return len(data)


def due(replies: ReplyRound, names: range) -> list[int]:
    """A reply of a new connection for each of the names; the names of those that were sent, in order."""
    sent: list[int] = []
    for name in names:
        Watch().writer(NotingSink(name, sent), replies).send(b"reply")
    return sent


def test_replies_of_many_connections_leave_at_the_end_of_the_iteration_in_order() -> None:
    async def scenario() -> None:
        sent = due(ReplyRound(), range(10))
        assert sent == [], "nothing leaves before the end"

        await asyncio.sleep(0)

        assert sent == list(range(10))

    asyncio.run(scenario())


def test_many_replies_do_not_wait_for_the_end_of_a_long_iteration() -> None:
    async def scenario() -> None:
        sent = due(ReplyRound(), range(2 * MAX_DUE + 1))
        assert sent == list(range(2 * MAX_DUE)), "two rounds left"

        await asyncio.sleep(0)

        assert sent == list(range(2 * MAX_DUE + 1))

    asyncio.run(scenario())


def test_a_round_that_is_flushed_early_is_sent_once_and_what_follows_at_the_end() -> None:
    async def scenario() -> None:
        replies = ReplyRound()
        first = due(replies, range(1))

        replies.flush()

        assert first == [0]
        second = due(replies, range(1, 2))
        assert second == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (first, second) == ([0], [1])

    asyncio.run(scenario())


def test_a_connection_that_cannot_be_written_to_at_all_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def flush(self) -> None:
            raise RuntimeError("no more file descriptors to watch")

    async def scenario() -> None:
        replies = ReplyRound()
        replies.add(Broken())  # type: ignore[arg-type]
        sent = due(replies, range(3))

        await asyncio.sleep(0)

        assert sent == [0, 1, 2]

    asyncio.run(scenario())
    assert "no more file descriptors to watch" in caplog.text
