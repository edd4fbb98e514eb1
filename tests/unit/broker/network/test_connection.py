"""A connection's own rules: order, pausing, closing, and memory given back, over real sockets."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import random
import socket
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from holdfast.broker.api.registry import HANDLERS
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.network.bound_listener import BoundListener
from holdfast.broker.network.connection import LARGE_FRAME, Connection
from holdfast.broker.network.reply_writer import ReplyWriter
from holdfast.broker.network.request_header import RequestHeader
from holdfast.broker.network.request_memory import STALLED_SECONDS
from holdfast.broker.server import Broker
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from holdfast.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.headers import decode_response, encode_request
from holdfast.wire.records import Record, encode_batch

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def running(path: Path, **settings: str) -> AsyncIterator[Broker]:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", **values}), path)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def connect(broker: Broker) -> Stream:
    return await asyncio.open_connection(*broker.address)


async def reply(stream: Stream) -> tuple[int, bytes]:
    """(correlation id, whole frame) of the next reply."""
    (size,) = struct.unpack(">i", await asyncio.wait_for(stream[0].readexactly(4), 10))
    frame = await asyncio.wait_for(stream[0].readexactly(size), 10)
    return struct.unpack_from(">i", frame)[0], frame


def api_versions(correlation_id: int) -> bytes:
    return encode_request(ApiVersionsRequest(), 0, correlation_id, "test")


def produce(correlation_id: int, topic: str, value: bytes) -> bytes:
    batch = encode_batch([Record(0, 1_700_000_000_000, None, value)])
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    return encode_request(ProduceRequest(acks=-1, topic_data=data), 9, correlation_id, "test")


def long_poll(correlation_id: int, topic: str, max_wait_ms: int) -> bytes:
    topics = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)
    return encode_request(request, 12, correlation_id, "test")


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not within 10 s: {what}")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            stream = await connect(broker)

            stream[1].write(b"".join(api_versions(number) for number in range(500)))

            assert [(await reply(stream))[0] for _ in range(500)] == list(range(500))

    run(scenario())


def test_what_waits_behind_a_parked_request_is_answered_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create("t", 1, {})
            stream, other = await connect(broker), await connect(broker)
            stream[1].write(long_poll(1, "t", 10_000) + api_versions(2) + api_versions(3))
            other[1].write(api_versions(7))
            assert (await reply(other))[0] == 7, "the other connection is not blocked"

            other[1].write(produce(8, "t", b"news"))

            assert [(await reply(stream))[0] for _ in range(3)] == [1, 2, 3]

    run(scenario())


def test_requests_before_a_bad_length_in_the_same_read_are_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            stream = await connect(broker)

            stream[1].write(api_versions(1) + struct.pack(">i", -5) + b"garbage")

            assert (await reply(stream))[0] == 1
            assert await asyncio.wait_for(stream[0].read(), 10) == b""

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert len([record for record in caplog.records if "closing the connection" in record.message]) == 1


def test_a_disconnect_during_a_long_poll_is_noticed_behind_a_pipelined_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create("t", 1, {})
            stream = await connect(broker)
            stream[1].write(long_poll(1, "t", 600_000) + api_versions(2))
            await until(lambda: any(connection.parked for connection in broker.connections), "parked")

            stream[1].close()

            await until(lambda: not broker.connections, "its connection is forgotten")

    run(scenario())


def test_a_client_that_leaves_during_a_long_poll_leaves_no_watcher(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await broker.topics.create("t", 1, {})
            assert topic is not None
            stream = await connect(broker)
            stream[1].write(long_poll(1, "t", 600_000))
            await until(lambda: bool(topic.partitions[0].fetch_waiters), "parked")

            stream[1].close()

            await until(lambda: not topic.partitions[0].fetch_waiters, "the watcher is gone")

    run(scenario())


def test_a_handler_that_fails_closes_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            bad, good = await connect(broker), await connect(broker)
            monkeypatch.setattr(BoundListener, "advertised", property(lambda _: 1 // 0))

            bad[1].write(encode_request(MetadataRequest([]), 9, 1, "test"))

            assert await asyncio.wait_for(bad[0].read(), 10) == b""
            good[1].write(api_versions(2))
            assert (await reply(good))[0] == 2

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert len(caplog.records) == 1


def test_mixed_frames_and_disconnects_leave_the_pool_empty(tmp_path: Path) -> None:
    rng = random.Random(5)

    async def one_client(broker: Broker) -> None:
        stream = await connect(broker)
        for number in range(rng.randrange(1, 8)):
            size = rng.choice([10, 1000, 300_000, 900_000])
            frame = produce(number, "t", bytes(size))
            if rng.random() < 0.15:
                stream[1].write(frame[: rng.randrange(len(frame))])
                await stream[1].drain()
                break
            stream[1].write(frame)
            assert (await reply(stream))[0] == number
        stream[1].transport.abort()

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create("t", 1, {})
            for _ in range(15):
                await asyncio.gather(*(one_client(broker) for _ in range(10)))
            await until(lambda: not broker.connections, "all connections are forgotten")
            assert broker.request_memory.used_bytes == 0

    run(scenario())


def test_a_peer_that_never_reads_stops_being_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create("t", 200, {})
            loop = asyncio.get_running_loop()
            silent = socket.create_connection(broker.address)
            silent.setblocking(False)
            ask = encode_request(MetadataRequest(None), 9, 1, "test") * 1000
            sent = 0
            with pytest.raises(TimeoutError):
                while True:
                    await asyncio.wait_for(loop.sock_sendall(silent, ask), 1)
                    sent += 1
            (connection,) = cast("Iterable[Connection]", broker.connections)
            assert connection._writer.blocked
            assert len(connection._pending_frames) <= 256 * 1024 / (len(ask) / 1000) + 1
            good = await connect(broker)
            good[1].write(api_versions(9))
            assert (await reply(good))[0] == 9
            silent.close()

    run(scenario())


# -- replies leave at the end of the loop's iteration ------------------------------------------------------------------


class Trace:
    """What connections do, in order: they serve requests and send replies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.record(monkeypatch, Connection, "_serve", "serve")
        self.record(monkeypatch, ReplyWriter, "flush", "send")

    def record(self, monkeypatch: pytest.MonkeyPatch, cls: type, method: str, step: str) -> None:
        original = getattr(cls, method)

        def recorded(*arguments: Any) -> Any:
            self.steps.append(step)
            return original(*arguments)

        monkeypatch.setattr(cls, method, recorded)


def read_frame(peer: socket.socket) -> tuple[int, bytes]:
    """(correlation id, whole frame) of the next reply, for a thread of its own."""
    (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
    frame = peer.recv(size, socket.MSG_WAITALL)
    return struct.unpack_from(">i", frame)[0], frame


def send_all_at_once(broker: Broker, requests: Iterable[tuple[socket.socket, bytes]]) -> None:
    """Returns when everything has arrived. Nothing is awaited: the event loop finds all requests in one iteration."""
    size = 0
    for peer, data in requests:
        peer.sendall(data)
        size += len(data)
    deadline = time.monotonic() + 10
    while sum(map(unread_bytes, broker.connections)) < size:
        assert time.monotonic() < deadline, "the requests did not arrive"
        time.sleep(0.001)


def unread_bytes(connection: Any) -> int:
    return int.from_bytes(fcntl.ioctl(connection._socket, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_replies_leave_when_all_that_arrived_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loops: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            peers = [socket.create_connection(broker.address, timeout=10) for _ in range(10)]
            await until(lambda: len(broker.connections) == 10, "all are connected")
            trace = Trace(monkeypatch)

            send_all_at_once(broker, [(peer, api_versions(1) + api_versions(2)) for peer in peers])

            frames = [await asyncio.to_thread(read_frame, peer) for peer in peers for _ in range(2)]
            assert [correlation_id for correlation_id, _ in frames] == [1, 2] * 10
            assert trace.steps == ["serve"] * 20 + ["send"] * 10
            for peer in peers:
                peer.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))


def test_replies_do_not_wait_for_a_large_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create("t", 1, {})
            small, large = (socket.create_connection(broker.address, timeout=10) for _ in range(2))
            await until(lambda: len(broker.connections) == 2, "both are connected")
            trace = Trace(monkeypatch)
            trace.record(monkeypatch, RequestHeader, "handle_in_slices", "handle")

            send_all_at_once(broker, [(small, api_versions(1)), (large, produce(2, "t", bytes(LARGE_FRAME)))])

            assert [(await asyncio.to_thread(read_frame, peer))[0] for peer in (small, large)] == [1, 2]
            assert trace.steps == ["serve", "serve", "send", "handle", "send"]
            small.close()
            large.close()

    run(scenario())


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_sends_its_last_request_and_closes_its_end_gets_the_reply(
    tmp_path: Path, loops: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            peer = socket.create_connection(broker.address, timeout=10)
            await until(lambda: len(broker.connections) == 1, "it is connected")

            peer.sendall(api_versions(1))
            peer.shutdown(socket.SHUT_WR)

            assert (await asyncio.to_thread(read_frame, peer))[0] == 1
            assert await asyncio.to_thread(peer.recv, 1) == b"", "then the connection is closed"
            peer.close()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))


def test_a_reply_that_is_due_when_the_broker_stops_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        broker = Broker(BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0"}), tmp_path)
        serves = HANDLERS[API_VERSIONS.key]

        def stop_and_answer(*arguments: Any) -> Any:
            (connection,) = broker.connections
            stopping.append(asyncio.create_task(broker.stop()))
            asyncio.get_running_loop().call_soon(lambda: seen.append(connection.has_reply_in_flight))
            return serves.function(*arguments)

        seen: list[bool] = []
        monkeypatch.setitem(HANDLERS, API_VERSIONS.key, replace(serves, function=stop_and_answer))
        await broker.start()
        peer = socket.create_connection(broker.address, timeout=10)
        peer.sendall(api_versions(1))

        assert (await asyncio.to_thread(read_frame, peer))[0] == 1
        assert await asyncio.to_thread(peer.recv, 1) == b""
        assert seen == [True], "the reply had not left when the broker began to stop"
        await stopping[0]
        peer.close()

    run(scenario())


def test_the_reply_to_an_unknown_api_versions_version_can_be_read_by_anyone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            stream = await connect(broker)

            stream[1].write(struct.pack(">ihhih", 11, 18, 99, 5, -1) + b"\x00")

            correlation_id, frame = await reply(stream)
            _, response = decode_response(API_VERSIONS, 0, frame)
            assert (correlation_id, response.error_code) == (5, 35)
            assert [(key.api_key, key.min_version) for key in response.api_keys] == [(18, 0)]

    run(scenario())


def test_an_unlimited_pool_lets_every_client_send_at_once(tmp_path: Path) -> None:
    # queued.max.request.bytes=-1 is Kafka's default and so stands in files written for Kafka.
    async def scenario() -> None:
        async with running(tmp_path, queued_max_request_bytes="-1") as broker:
            await broker.topics.create("t", 1, {})
            holder, other = await connect(broker), await connect(broker)
            frame = produce(1, "t", bytes(900_000))
            holder[1].write(frame[:500_000])
            await until(lambda: broker.request_memory.used_bytes > 0, "half of it has arrived")

            other[1].write(frame)

            # Sooner than the half-sent request is given up for standing still.
            async with asyncio.timeout(STALLED_SECONDS / 2):
                assert (await reply(other))[0] == 1

    run(scenario())


def test_a_peer_has_one_address_whichever_socket_it_came_through(tmp_path: Path) -> None:
    """An IPv4 peer of an IPv6 socket has an address of its own kind there; rights are for hosts, not for sockets."""

    async def scenario() -> None:
        async with running(
            tmp_path, listeners="PLAINTEXT://[::]:0", advertised_listeners="PLAINTEXT://127.0.0.1:9"
        ) as broker:
            stream = await asyncio.open_connection("127.0.0.1", broker.address[1])
            stream[1].write(api_versions(1))
            await reply(stream)
            assert [one.session.client_host for one in broker.connections] == ["127.0.0.1"]
            stream[1].close()

    run(scenario())
