"""TLS on either event loop: what goes in comes out, in order, however it is cut, and a slow reader waits for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvloop

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.network.byte_stream import ByteSink
from holdfast.broker.network.tls import ENCRYPT_BYTES_PER_TURN, TlsStream
from holdfast.broker.server import Broker
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.headers import decode_response, encode_request
from holdfast.wire.records import Record, decode_batch, encode_batch
from tests.support.certificates import Authority, make_authority
from tests.support.key_updates import KeyUpdater

PATIENCE_S = 30
Loops = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    made: Loops = request.param
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("certificates"))
    made.sign("broker", "IP:127.0.0.1")
    return made


class Client:
    """A blocking client, for a thread of its own."""

    def __init__(self, address: tuple[str, int], authority: Authority, receive_buffer: int | None = None) -> None:
        plain = socket.socket()
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(PATIENCE_S)
        plain.connect(address)
        context = ssl.create_default_context(cafile=str(authority.certificate))
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self.socket.recv(min(1 << 16, size - len(received)))
            assert chunk, "closed by the broker"
            received += chunk
        return received


def produce(number: int, value: bytes) -> bytes:
    batch = encode_batch([Record(0, 1_700_000_000_000, None, value)])
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
    return encode_request(ProduceRequest(acks=-1, topic_data=data), 9, number, "test")


def fetch(number: int, offset: int) -> bytes:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 24)
    topics = [FetchTopic("t", partitions=[wanted])]
    return encode_request(
        FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=topics), 12, number, "test"
    )


def run(loops: Loops, path: Path, authority: Authority, scenario: Callable[[tuple[str, int]], None]) -> None:
    """The scenario in a thread, beside a broker with a TLS listener and the topic `t`."""
    directory = authority.certificate.parent

    async def all_of_it() -> None:
        config = BrokerConfig.of(
            {
                "listeners": "SSL://127.0.0.1:0",
                "ssl.certificate.location": str(directory / "broker.pem"),
                "ssl.key.location": str(directory / "broker.key.pem"),
            }
        )
        broker = Broker(config, path)
        await broker.start()
        try:
            await broker.topics.create("t", 1, {})
            await asyncio.wait_for(asyncio.to_thread(scenario, broker.address), 60)
            assert broker.request_memory.used_bytes == 0
        finally:
            await broker.stop()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(all_of_it())


def test_requests_that_are_cut_anywhere_are_put_together(loops: Loops, tmp_path: Path, authority: Authority) -> None:
    values = [bytes([number]) * (1 + number * 30_000) for number in range(8)]

    def scenario(address: tuple[str, int]) -> None:
        client = Client(address, authority)
        stream = b"".join(produce(number, value) for number, value in enumerate(values))
        at, step = 0, 1
        while at < len(stream):  # a record of TLS of each size, the largest over two of them
            client.socket.sendall(stream[at : at + step])
            at, step = at + step, min(step * 3, 20_000)
        for number in range(len(values)):
            answered, response = decode_response(PRODUCE, 9, client.frame())
            assert answered == number
            assert response.responses[0].partition_responses[0].base_offset == number
        client.socket.sendall(b"".join(fetch(number, number) for number in range(len(values))))
        for number, value in enumerate(values):
            _, response = decode_response(FETCH, 12, client.frame())
            records = bytes(response.responses[0].partitions[0].records)
            size = 12 + struct.unpack_from(">i", records, 8)[0]
            assert [record.value for record in decode_batch(records[:size])] == [value], number

    run(loops, tmp_path, authority, scenario)


def test_an_unread_reply_delays_no_other_client_and_arrives_whole(
    loops: Loops, tmp_path: Path, authority: Authority
) -> None:
    count = 5
    value = bytes(range(256)) * 3600

    def scenario(address: tuple[str, int]) -> None:
        slow, other = Client(address, authority, receive_buffer=4096), Client(address, authority)
        for number in range(count):
            other.socket.sendall(produce(number, value))
            other.frame()
        assert count * len(value) > 4 * ENCRYPT_BYTES_PER_TURN, "more than one turn"
        slow.socket.sendall(fetch(1, 0) + encode_request(ApiVersionsRequest(), 0, 2, "test"))
        for number in range(100):
            other.socket.sendall(encode_request(ApiVersionsRequest(), 0, number, "test"))
            assert struct.unpack_from(">i", other.frame())[0] == number
        _, response = decode_response(FETCH, 12, slow.frame())
        assert bytes(response.responses[0].partitions[0].records).count(value) == count
        assert struct.unpack_from(">i", slow.frame())[0] == 2, "and what was asked behind it, after it"

    run(loops, tmp_path, authority, scenario)


class RawClient:
    """A client that sees the records of TLS as they come."""

    def __init__(self, address: tuple[str, int], authority: Authority) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.certificate))
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        while not self._finished(self._ssl.do_handshake):
            self._receive()

    def _finished(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._socket.sendall(self._outgoing.read())
        return True

    def _receive(self) -> bytes:
        received = self._socket.recv(1 << 16)
        assert received, "closed by the broker"
        self._incoming.write(received)
        return received

    def records_of_replies(self, requests: list[bytes]) -> int:
        """Sends the requests as one record; the number of records that the replies came in."""
        self._ssl.write(b"".join(requests))
        self._socket.sendall(self._outgoing.read())
        raw, replies = b"", b""
        while _frames(replies) < len(requests):
            raw += self._receive()
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    replies += self._ssl.read(1 << 16)
        return _records(raw)

    def close(self) -> None:
        self._socket.close()


def _frames(stream: bytes) -> int:
    count = at = 0
    while at < len(stream):
        at += 4 + struct.unpack_from(">i", stream, at)[0]
        count += 1
    return count


def _records(raw: bytes) -> int:
    count = at = 0
    while at < len(raw):
        at += 5 + struct.unpack_from(">H", raw, at + 3)[0]
        count += 1
    return count


def test_replies_to_pipelined_requests_are_one_record(loops: Loops, tmp_path: Path, authority: Authority) -> None:
    ask = encode_request(ApiVersionsRequest(), 0, 1, "test")

    def scenario(address: tuple[str, int]) -> None:
        client = RawClient(address, authority)
        client.records_of_replies([ask])  # session tickets come before it
        assert client.records_of_replies([ask] * 5) == 1
        assert sum(client.records_of_replies([ask]) for _ in range(5)) == 5, "the control: one after the other"
        client.close()

    run(loops, tmp_path, authority, scenario)


def test_a_client_that_sends_close_notify_gets_one(loops: Loops, tmp_path: Path, authority: Authority) -> None:
    def scenario(address: tuple[str, int]) -> None:
        client = Client(address, authority)
        client.socket.sendall(encode_request(ApiVersionsRequest(), 0, 1, "test"))
        client.frame()
        client.socket.unwrap().close()  # raises if the other side just hangs up

    run(loops, tmp_path, authority, scenario)


def test_a_peer_that_asks_for_new_keys_and_reads_nothing_is_sent_away(
    loops: Loops,
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_sink = TlsStream.open_sink

    def with_little_room(stream: TlsStream, peer: socket.socket) -> ByteSink:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return open_sink(stream, peer)

    monkeypatch.setattr(TlsStream, "open_sink", with_little_room)

    def scenario(address: tuple[str, int]) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(address)
        greedy = KeyUpdater(plain)
        try:
            assert any(not greedy.ask_for_new_keys() for _ in range(50_000)), "it may go on for ever"
        finally:
            greedy.close()
        other = Client(address, authority)
        other.socket.sendall(encode_request(ApiVersionsRequest(), 0, 1, "test"))
        assert struct.unpack_from(">i", other.frame())[0] == 1

    with caplog.at_level(logging.INFO):
        run(loops, tmp_path, authority, scenario)

    assert "asks for new TLS keys and does not read the answers" in caplog.text


def test_a_peer_that_has_new_keys_now_and_then_is_served(loops: Loops, tmp_path: Path, authority: Authority) -> None:
    def scenario(address: tuple[str, int]) -> None:
        plain = socket.create_connection(address)
        updating = KeyUpdater(plain)
        try:
            for number in range(50):
                assert updating.ask_for_new_keys()
                updating.write(produce(number, b"v" * 3000))
            other = Client(address, authority)
            other.socket.sendall(fetch(1, 49))
            while not decode_response(FETCH, 12, other.frame())[1].responses[0].partitions[0].records:
                other.socket.sendall(fetch(1, 49))
        finally:
            updating.close()

    run(loops, tmp_path, authority, scenario)


class Received:
    """A connection that notes what it is given."""

    def __init__(self) -> None:
        self.steps: list[bytes | str] = []
        self._buffer = bytearray(1 << 16)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.steps.append(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        self.steps.append("eof")
        return False

    def connection_made(self, transport: object) -> None: ...

    def stream_established(self, principal: str | None) -> None: ...

    def flush_stream(self) -> None: ...


def test_what_was_received_before_an_eof_is_served_first(authority: Authority) -> None:
    async def scenario() -> None:
        # given an established stream, which holds a request back because its connection does not read
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        directory = authority.certificate.parent
        server.load_cert_chain(directory / "broker.pem", directory / "broker.key.pem")
        user: Any = Received()
        scratch = memoryview(bytearray(1 << 16))
        env: Any = SimpleNamespace(scratch=scratch, memory=SimpleNamespace(has_waiters=False))
        context: Any = SimpleNamespace(ssl_context=server)
        stream = TlsStream(env, context, lambda _stream: user)
        stream.connection_made(MagicMock())
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=str(authority.certificate)).wrap_bio(
            to_client, to_server, server_hostname="127.0.0.1"
        )

        def transfer() -> None:
            data = to_server.read()
            scratch[: len(data)] = data
            stream.buffer_updated(len(data))
            to_client.write(stream._outgoing.read())

        while not stream.is_established:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            transfer()
        stream.pause_reading()
        client.write(b"request")
        transfer()
        assert user.steps == []

        # when the connection reads on, and the end of the stream is found in the same iteration of the event loop
        stream.resume_reading()
        assert not stream.eof_received()

        # then
        assert user.steps == [b"request", "eof"]

    asyncio.run(scenario())
