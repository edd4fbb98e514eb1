"""A socket of the router: order, unsent data, and both kinds of end, on either event loop."""

from __future__ import annotations

import asyncio
import random
import socket
import struct

import pytest

from holdfast.gateway.router.channel import READ_BYTES, Channel
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import until


class User:
    def __init__(self) -> None:
        self.got = bytearray()
        self.calls: list[str] = []

    def received(self, data: memoryview) -> None:
        self.got += data

    def ended(self) -> None:
        self.calls.append("ended")

    def drained(self) -> None:
        self.calls.append("drained")

    def lost(self, reason: str) -> None:
        self.calls.append(f"lost: {reason}")


def connected() -> tuple[Channel, User, socket.socket]:
    """A started channel, its user, and the other end, which does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    other.setblocking(False)
    user = User()
    channel = Channel(asyncio.get_running_loop(), peer, user, memoryview(bytearray(READ_BYTES)))
    channel.start()
    return channel, user, other


def reset(other: socket.socket) -> None:
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


async def read_all(other: socket.socket) -> bytes:
    got = bytearray()
    while chunk := await asyncio.get_running_loop().sock_recv(other, 1 << 16):
        got += chunk
    return bytes(got)


def test_what_is_written_arrives_in_order_however_slowly_it_is_read(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        rng = random.Random(1)
        parts = [rng.randbytes(rng.choice((1, 1000, 500_000))) for _ in range(100)]
        for part in parts:
            channel.write(memoryview(part))
        channel.write_end()
        assert channel.unsent
        before = channel.progress
        assert await read_all(other) == b"".join(parts)
        assert (channel.unsent, user.calls) == (0, ["drained"])
        assert channel.progress > before
        channel.close()
        other.close()

    run(main())


def test_the_data_may_change_after_the_call(run: Run) -> None:
    async def main() -> None:
        channel, _, other = connected()
        buffer = bytearray(b"a" * 8_000_000)
        channel.write(memoryview(buffer))
        buffer[:] = b"b" * len(buffer)
        channel.write_end()
        assert await read_all(other) == b"a" * len(buffer)
        channel.close()
        other.close()

    run(main())


def test_a_paused_channel_reads_nothing(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        channel.pause()
        other.send(b"hello")
        await asyncio.sleep(0.05)
        assert not user.got
        channel.resume()
        await until(lambda: bytes(user.got) == b"hello", "nothing was read")
        channel.close()
        other.close()

    run(main())


def test_the_peer_may_end_its_stream_and_still_read(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        other.send(b"hello")
        other.shutdown(socket.SHUT_WR)
        await until(lambda: user.calls == ["ended"], "the end is not noticed")
        assert bytes(user.got) == b"hello"
        channel.write(b"bye")
        channel.write_end()
        assert await read_all(other) == b"bye"
        channel.close()
        other.close()

    run(main())


@pytest.mark.parametrize("size", [0, 50, 3_000_000])
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_reset_is_noticed_after_everything_that_arrived_before_it(run: Run, size: int, is_paused: bool) -> None:
    async def main() -> None:
        channel, user, other = connected()
        if is_paused:
            channel.pause()
        sent = other.send(bytes(size)) if size else 0
        await asyncio.sleep(0.02)
        reset(other)
        channel.resume()
        await until(lambda: bool(user.calls), "the reset is not noticed")
        assert user.calls == ["lost: Connection reset by peer"]
        assert (
            len(user.got) == sent if size <= 50 else 0 < len(user.got) <= sent
        )  # the kernel drops what it has not sent
        channel.write(b"ignored")
        channel.write_end()
        channel.close()

    run(main())


def test_a_write_to_a_peer_that_is_gone_is_reported_later_and_once(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        channel.pause()
        reset(other)
        await asyncio.sleep(0.02)
        channel.write(b"x")
        channel.write(b"y")
        assert not user.calls
        await asyncio.sleep(0.02)
        assert len(user.calls) == 1
        assert user.calls[0].startswith("lost")
        channel.close()

    run(main())


def test_a_reset_with_unsent_data_is_reported(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        channel.pause()
        channel.write(bytes(20_000_000))
        assert channel.unsent
        reset(other)
        await until(lambda: bool(user.calls), "the reset is not noticed")
        assert user.calls[0].startswith("lost")
        assert not channel.unsent
        channel.close()

    run(main())


def test_nothing_is_reported_after_close(run: Run) -> None:
    async def main() -> None:
        channel, user, other = connected()
        reset(other)
        channel.write(b"x")
        channel.close()
        channel.close()
        await asyncio.sleep(0.02)
        assert not user.calls

    run(main())
