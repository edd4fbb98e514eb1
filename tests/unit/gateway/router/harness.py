"""A router between a client whose bytes are written by hand and a Kafka whose answers are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.ports import RoutedClient
from holdfast.gateway.router.router import Router
from holdfast.gateway.router.settings import RouterSettings
from holdfast.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from tests.support.held_ports import held_port_range

PATIENCE_S = 20
HOST = "127.0.0.1"
FORWARDED = 2
"""ListOffsets: the router knows nothing about it."""
LOCAL = 12
"""Heartbeat."""
NODE = 1
PORTS = 4

Answer = Callable[[bytes, RoutedClient], bytes | Coroutine[Any, Any, bytes]]


def request(key: int, correlation_id: int, body: bytes = b"", version: int = 1) -> bytes:
    """A whole frame with a header of version 1."""
    frame = struct.pack(">hhih", key, version, correlation_id, 4) + b"test" + body
    return struct.pack(">i", len(frame)) + frame


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def correlation_id_of(frame: bytes) -> int:
    """Of a request without its length."""
    return int(struct.unpack_from(">i", frame, 4)[0])


class FakeBrokers:
    def __init__(self, upstream: dict[int, Address], base: int, *, is_transparent: bool = True) -> None:
        self.is_transparent = is_transparent
        self.addresses = upstream
        self.base = base
        self.actions: list[Callable[[], None]] = []

    @property
    def node_ids(self) -> list[int]:
        return sorted(self.addresses)

    def upstream(self, node_id: int) -> Address:
        if node_id not in self.addresses:
            raise KafkaUnreachable(f"Kafka lists no broker {node_id}")
        return self.addresses[node_id]

    def advertised(self, node_id: int) -> Address:
        return Address(HOST, self.base + 1 + node_id)

    def on_changed(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def change(self, upstream: dict[int, Address]) -> None:
        self.addresses = upstream
        for action in self.actions:
            action()


class FakeRequests:
    """Answers with `local`, unless a test sets another answer."""

    def __init__(self, local_keys: frozenset[int] = frozenset((LOCAL,))) -> None:
        self.local_keys = local_keys
        self.answer_with: Answer = lambda frame, _: response(correlation_id_of(frame), b"local")
        self.answered: list[int] = []
        self.closed_clients: list[RoutedClient] = []
        self.clients: list[RoutedClient] = []

    def answer(self, frame: bytes, client: RoutedClient) -> bytes | Coroutine[Any, Any, bytes]:
        self.answered.append(correlation_id_of(frame))
        if client not in self.clients:
            self.clients.append(client)
        return self.answer_with(frame, client)

    def api_versions(self, kafka: ApiVersionsResponse) -> ApiVersionsResponse:
        kept = [one for one in kafka.api_keys if one.api_key not in self.local_keys]
        kafka.api_keys = [*kept, *(ApiVersion(key, 0, 4) for key in sorted(self.local_keys))]
        return kafka

    def closed(self, client: RoutedClient) -> None:
        self.closed_clients.append(client)


class Peer:
    """One end of a connection, for hand-written frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def frame(self) -> bytes:
        """The next frame without its length."""
        (size,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), PATIENCE_S))
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)

    async def reply(self) -> tuple[int, bytes]:
        """(correlation id, body) of the next response."""
        frame = await self.frame()
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def ended(self) -> bytes:
        """Everything up to the end of the stream."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.close()


Serve = Callable[[Peer], Awaitable[None]]


async def answer_all(peer: Peer) -> None:
    """Answers each request with `kafka`, in order."""
    while True:
        frame = await peer.frame()
        await peer.send(response(correlation_id_of(frame), b"kafka"))


class ScriptedKafka:
    """A broker that serves each connection with `serve`."""

    def __init__(self, serve: Serve = answer_all) -> None:
        self.serve = serve
        self.peers: list[Peer] = []
        self.failures: list[Exception] = []
        self.address = Address(HOST, 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, **options: Any) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=1 << 16, **options)
        self.address = Address(HOST, self._server.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    async def stop(self) -> None:
        self.stop_listening()
        for task in self._tasks:
            task.cancel()
        for peer in self.peers:
            peer.writer.transport.abort()
        assert not self.failures, self.failures

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        task = asyncio.get_running_loop().create_task(self._run(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: Peer) -> None:
        try:
            await self.serve(peer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:  # noqa: BLE001  # reported at the end of the test
            self.failures.append(error)
        peer.close()


class Gateway:
    """A running router, and what it is connected with."""

    def __init__(self, kafka: ScriptedKafka, requests: FakeRequests, brokers: FakeBrokers, router: Router) -> None:
        self.kafka = kafka
        self.requests = requests
        self.brokers = brokers
        self.router = router
        self.topics_changed = 0
        self._peers: list[Peer] = []

    async def connect(self, node_id: int | None = NODE, **options: Any) -> Peer:
        port = self.brokers.base if node_id is None else self.brokers.base + 1 + node_id
        peer = Peer(*await asyncio.open_connection(HOST, port, **options))
        self._peers.append(peer)
        return peer

    @property
    def connection(self) -> Any:
        """The router's only connection."""
        connections: Any = self.router._connections
        (only,) = connections
        return only

    async def empty(self) -> None:
        """Until the router has no connection any more."""
        await until(lambda: self.router.connection_count == 0, "connections stay open")
        assert len(self.requests.closed_clients) == len(set(self.requests.closed_clients))

    def stop(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()


@contextlib.asynccontextmanager
async def gateway(
    serve: Serve = answer_all,
    *,
    requests: FakeRequests | None = None,
    client_tls: Any = None,
    kafka_tls: Any = None,
    is_transparent: bool = True,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    kafka = ScriptedKafka(serve)
    await kafka.start(**({"ssl": kafka_tls} if kafka_tls is not None else {}))
    held = held_port_range(PORTS)
    base = held[0].getsockname()[1]
    brokers = FakeBrokers({NODE: kafka.address}, base, is_transparent=is_transparent)
    requests = requests or FakeRequests()
    made = RouterSettings(listen=Address(HOST, base), **settings)

    def topics_changed() -> None:
        running.topics_changed += 1

    router = Router(brokers, requests, made, client_tls, on_topics_changed=topics_changed)
    running = Gateway(kafka, requests, brokers, router)
    await router.start()
    try:
        yield running
    finally:
        running.stop()
        await router.stop()
        await kafka.stop()
        for one in held:
            one.close()


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(PATIENCE_S * 200):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what)
