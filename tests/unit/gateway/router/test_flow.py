"""Back-pressure: whatever the sizes and however slow a peer is, the router keeps about a megabyte of it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from holdfast.broker.network.framing import EAGER_BYTES
from holdfast.client.addresses import Address
from holdfast.gateway.router.channel import READ_BYTES
from holdfast.gateway.router.request_stream import HELD_BYTES
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import (
    FORWARDED,
    LOCAL,
    FakeRequests,
    Gateway,
    Peer,
    correlation_id_of,
    gateway,
    request,
    response,
    until,
)

MEGABYTE = 1 << 20
HUNDRED_MEGABYTES = 100 * MEGABYTE
KEPT = 3 * MEGABYTE
"""What tracemalloc may see: the rest of a read, its copy in transit, and small things."""


class BlockingKafka:
    """A broker in a thread, so that its own buffers are known: it answers with many zeros from one chunk."""

    def __init__(self, response_bytes: int) -> None:
        self._size = response_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname()[:2])
        self.sent = 0
        self.received = 0
        self.reads = threading.Event()
        self.reads.set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        chunk, buffer = memoryview(bytes(64 * 1024)), memoryview(bytearray(64 * 1024))
        peer, _ = self._listener.accept()
        with peer:
            while True:
                self.reads.wait()
                head = self._exactly(peer, buffer[:4])
                if head is None:
                    return
                left = struct.unpack(">i", head)[0]
                first = True
                while left:
                    part = self._exactly(peer, buffer[: min(left, len(buffer))])
                    assert part is not None
                    if first:
                        (correlation_id,) = struct.unpack_from(">i", part, 4)
                        first = False
                    left -= len(part)
                    self.received += len(part)
                    self.reads.wait()
                peer.sendall(struct.pack(">ii", self._size + 4, correlation_id))
                for start in range(0, self._size, len(chunk)):
                    piece = chunk[: self._size - start]
                    peer.sendall(piece)
                    self.sent += len(piece)

    @staticmethod
    def _exactly(peer: socket.socket, buffer: memoryview) -> memoryview | None:
        filled = 0
        while filled < len(buffer):
            try:
                count = peer.recv_into(buffer[filled:])
            except OSError:
                return None
            if not count:
                return None
            filled += count
        return buffer

    def close(self) -> None:
        self.reads.set()
        self._listener.close()


class BlockingClient:
    """In a thread of its own, with one small buffer."""

    def __init__(self, running: Gateway, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self._address = ("127.0.0.1", running.brokers.base + 2)

    def read_response(self) -> int:
        """Its size."""
        buffer = bytearray(64 * 1024)
        assert self.socket.recv_into(buffer, 4, socket.MSG_WAITALL) == 4
        left = size = struct.unpack_from(">i", buffer)[0]
        while left:
            count = self.socket.recv_into(buffer, min(left, len(buffer)))
            assert count, "closed"
            left -= count
        return int(size)

    def connect(self) -> None:
        self.socket.connect(self._address)


async def with_peak(action: Callable[[], None]) -> int:
    """The largest amount of memory allocated while the action runs in a thread."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        await asyncio.to_thread(action)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_response_of_100_megabytes_is_not_kept(run: Run) -> None:
    async def main() -> None:
        kafka = BlockingKafka(HUNDRED_MEGABYTES)
        async with gateway() as running:
            running.brokers.change({1: kafka.address})
            client = BlockingClient(running)

            def fetch() -> None:
                client.connect()
                client.socket.sendall(request(FORWARDED, 1))
                assert client.read_response() == HUNDRED_MEGABYTES + 4

            assert await with_peak(fetch) < KEPT
            client.socket.close()
        kafka.close()

    run(main())


def test_a_request_of_90_megabytes_is_not_kept(run: Run) -> None:
    async def main() -> None:
        kafka = BlockingKafka(10)
        async with gateway() as running:
            running.brokers.change({1: kafka.address})
            client = BlockingClient(running)
            size = 90 * MEGABYTE

            def produce() -> None:
                client.connect()
                client.socket.sendall(struct.pack(">ihhihhh", size, 0, 3, 1, -1, -1, 1))
                chunk = bytes(64 * 1024)
                for start in range(14, size, len(chunk)):
                    client.socket.sendall(memoryview(chunk)[: size - start])
                assert client.read_response() == 14

            assert await with_peak(produce) < KEPT
            assert kafka.received == size
            client.socket.close()
        kafka.close()

    run(main())


def test_a_client_that_does_not_read_stops_kafka(run: Run) -> None:
    async def main() -> None:
        kafka = BlockingKafka(HUNDRED_MEGABYTES)
        async with gateway() as running:
            running.brokers.change({1: kafka.address})
            client = BlockingClient(running, receive_buffer=64 * 1024)
            await asyncio.to_thread(client.connect)
            await asyncio.to_thread(client.socket.sendall, request(FORWARDED, 1))
            await until(lambda: kafka.sent > 0, "no response")
            await stands_still(lambda: kafka.sent)
            assert kafka.sent < HUNDRED_MEGABYTES // 2  # the rest of it waits in Kafka
            assert 0 < running.connection._channel.unsent <= READ_BYTES
            # The other clients are served meanwhile.
            other = await running.connect()
            await other.send(request(LOCAL, 1))
            assert (await other.reply())[0] == 1
            assert await asyncio.to_thread(client.read_response) == HUNDRED_MEGABYTES + 4
            client.socket.close()
        kafka.close()

    # On a machine with very large socket buffers, more than half could be in them.
    run(main())


async def stands_still(value: Callable[[], int]) -> None:
    before = -1
    while value() != before:
        before = value()
        await asyncio.sleep(0.3)


def test_kafka_that_does_not_read_stops_the_client(run: Run) -> None:
    async def main() -> None:
        kafka = BlockingKafka(10)
        kafka.reads.clear()
        async with gateway() as running:
            running.brokers.change({1: kafka.address})
            client = await running.connect()
            frames = 60
            sent = 0

            async def write() -> None:
                nonlocal sent
                for number in range(frames):
                    await client.send(request(FORWARDED, number, bytes(MEGABYTE)))
                    sent += 1

            writing = asyncio.get_running_loop().create_task(write())
            await stands_still(lambda: sent)
            assert sent < frames
            assert running.connection._upstream.unsent <= READ_BYTES
            kafka.reads.set()
            for number in range(frames):
                assert (await client.reply())[0] == number
            await writing
        kafka.close()

    run(main())


def test_requests_behind_a_parked_one_stop_the_client(run: Run) -> None:
    async def main() -> None:
        parked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        requests = FakeRequests()
        first = True

        async def wait() -> bytes:
            return await parked

        def answer(frame: bytes, _client: object) -> object:
            nonlocal first
            if first:
                first = False
                return wait()
            return response(correlation_id_of(frame))

        requests.answer_with = answer  # type: ignore[assignment]
        async with gateway(requests=requests) as running:
            client = await running.connect()
            sent = 0

            async def write() -> None:
                nonlocal sent
                for number in range(60):
                    await client.send(request(LOCAL, number, bytes(MEGABYTE)))
                    sent += 1

            writing = asyncio.get_running_loop().create_task(write())
            await stands_still(lambda: sent)
            assert sent < 60
            assert running.connection._requests._held_bytes <= READ_BYTES + HELD_BYTES
            parked.set_result(response(0))
            for number in range(60):
                assert (await client.reply())[0] == number
            await writing

    run(main())


def test_a_client_that_does_not_read_its_answers_gets_no_more_of_them(run: Run) -> None:
    async def main() -> None:
        requests = FakeRequests()
        large = bytes(8 * MEGABYTE)
        requests.answer_with = lambda frame, _: response(correlation_id_of(frame), large)
        async with gateway(requests=requests) as running:
            client = BlockingClient(running, receive_buffer=64 * 1024)
            await asyncio.to_thread(client.connect)
            frames = b"".join(request(LOCAL, number) for number in range(20))
            await asyncio.to_thread(client.socket.sendall, frames)
            await stands_still(lambda: len(requests.answered))
            assert len(requests.answered) <= 2
            for _ in range(20):
                assert await asyncio.to_thread(client.read_response) == len(large) + 4
            client.socket.close()

    run(main())


# -- the memory of requests that the gateway answers -------------------------------------------------------------------


def test_half_sent_requests_take_memory_only_as_they_arrive(run: Run) -> None:
    async def main() -> None:
        async with gateway(held_request_max_bytes=8 * MEGABYTE) as running:
            client = await running.connect()
            frame = request(LOCAL, 1, bytes(50 * MEGABYTE))
            memory = running.router._env.memory  # type: ignore[union-attr]
            for start, stop, most in ((0, 50_000, 50_000), (50_000, 100_000, EAGER_BYTES)):
                await client.send(frame[start:stop])
                await asyncio.sleep(0.1)
                assert 0 < memory.used_bytes <= most
            await client.send(frame[100_000 : 3 * MEGABYTE])
            await asyncio.sleep(0.1)
            assert memory.used_bytes <= 6 * MEGABYTE
            client.close()
            await running.empty()
            assert memory.used_bytes == 0

    run(main())


def test_requests_wait_for_memory_and_all_are_answered(run: Run) -> None:
    async def main() -> None:
        async with gateway(held_request_max_bytes=4 * MEGABYTE) as running:
            clients = [await running.connect() for _ in range(8)]

            async def send(client: Peer) -> None:
                for number in range(3):
                    await client.send(request(LOCAL, number, bytes(MEGABYTE)))
                    assert await client.reply() == (number, b"local")

            await asyncio.gather(*map(send, clients))
            for client in clients[1:]:
                client.close()
            await until(lambda: running.router.connection_count == 1, "not closed")
            assert running.connection._env.memory.used_bytes == 0

    run(main())


def test_clients_that_hold_memory_and_stop_are_evicted_when_others_wait(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.network.request_memory.STALLED_SECONDS", 0.3)

    async def main() -> None:
        async with gateway(
            held_request_max_bytes=4 * MEGABYTE, max_idle_ms=60_000, authentication_timeout_ms=400
        ) as running:
            stalled = [await running.connect() for _ in range(3)]
            for client in stalled:
                await client.send(request(LOCAL, 1, bytes(MEGABYTE))[: MEGABYTE // 2])
            honest = await running.connect()
            await honest.send(request(LOCAL, 1, bytes(MEGABYTE)))
            assert await honest.reply() == (1, b"local")

    run(main())
