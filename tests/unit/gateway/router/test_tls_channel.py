"""TLS towards clients and towards Kafka, each on its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from typing import Any

import pytest

from holdfast.broker.config.schema import ConfigError
from holdfast.broker.config.security import TlsSettings
from holdfast.broker.network.tls_context import TlsContext
from holdfast.client.addresses import Address
from holdfast.gateway.router import channel
from holdfast.gateway.router.router import Router
from holdfast.gateway.router.settings import RouterSettings
from tests.support.certificates import Authority, make_authority
from tests.support.key_updates import KeyUpdater
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import (
    FORWARDED,
    HOST,
    LOCAL,
    FakeBrokers,
    FakeRequests,
    Peer,
    correlation_id_of,
    gateway,
    request,
    response,
    until,
)

LARGE = 5_000_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = make_authority(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "IP:127.0.0.1")
    made.sign("other", "DNS:elsewhere.example")
    return made


def server_context(authority: Authority, name: str = "server") -> TlsContext:
    directory = authority.certificate.parent
    return TlsContext(TlsSettings(certificate=directory / f"{name}.pem", key=directory / f"{name}.key.pem"))


def client_context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


async def echo_sizes(peer: Peer) -> None:
    """Answers each request with as many bytes as it has."""
    while True:
        frame = await peer.frame()
        await peer.send(response(correlation_id_of(frame), frame))


@pytest.mark.parametrize("sides", ["clients", "kafka", "both"])
@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_goes_in_comes_out(run: Run, authority: Authority, sides: str, highest: ssl.TLSVersion) -> None:
    async def main() -> None:
        client_tls, kafka_tls, upstream_tls = None, None, None
        options: dict[str, Any] = {}
        if sides != "kafka":
            client_tls = server_context(authority)
            client_tls.ssl_context.maximum_version = highest
            options = {"ssl": client_context(authority), "server_hostname": HOST}
        if sides != "clients":
            kafka_tls, upstream_tls = server_context(authority).ssl_context, client_context(authority)
            kafka_tls.maximum_version = highest
        async with gateway(
            echo_sizes, client_tls=client_tls, kafka_tls=kafka_tls, upstream_tls=upstream_tls
        ) as running:
            client = await running.connect(**options)
            sizes = [0, 10, 100_000, LARGE, 16_384, 1]
            frames = [request(FORWARDED, number, bytes([number]) * size) for number, size in enumerate(sizes)]
            sending = asyncio.get_running_loop().create_task(client.send(*frames, request(LOCAL, 99)))
            for number, frame in enumerate(frames):
                assert await client.reply() == (number, frame[4:])
            assert await client.reply() == (99, b"local")
            await sending

    run(main())


def test_a_producer_with_acks_0_may_disconnect_at_once(run: Run, authority: Authority) -> None:
    """With blocking sockets, because uvloop's TLS loses the end of a stream that is read slowly."""
    got = bytearray()
    sent = request(0, 1, b"\xff\xff\0\0" + bytes(LARGE), version=3)
    context = client_context(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3, unread session tickets make the kernel drop unsent data

    def kafka(listener: socket.socket) -> None:
        with server_context(authority).ssl_context.wrap_socket(listener.accept()[0], server_side=True) as peer:
            while chunk := peer.recv(100_000):
                got.extend(chunk)

    def client(address: tuple[str, int]) -> None:
        with context.wrap_socket(socket.create_connection(address), server_hostname=HOST) as peer:
            peer.sendall(sent)

    async def main() -> None:
        listener = socket.create_server((HOST, 0))
        async with gateway(client_tls=server_context(authority), upstream_tls=client_context(authority)) as running:
            running.brokers.change({1: Address(*listener.getsockname())})
            serving = asyncio.get_running_loop().create_task(asyncio.to_thread(kafka, listener))
            await asyncio.to_thread(client, (HOST, running.brokers.base + 2))
            await asyncio.wait_for(serving, 20)
            assert bytes(got) == sent
            await running.empty()
        listener.close()

    run(main())


def test_kafkas_certificate_must_name_its_host(
    run: Run, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with gateway(
            kafka_tls=server_context(authority, "other").ssl_context, upstream_tls=client_context(authority)
        ) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            assert await client.ended() == b""
            await running.empty()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "certificate verify failed" in caplog.text
    assert "127.0.0.1" in caplog.text


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.0\r\n\r\n", request(LOCAL, 1), b"\x16\x03\x01\x00\x05hello" * 10])
def test_a_client_without_tls_is_disconnected(run: Run, authority: Authority, sent: bytes) -> None:
    async def main() -> None:
        async with gateway(client_tls=server_context(authority)) as running:
            client = await running.connect()
            await client.send(sent)
            await client.ended()
            await running.empty()
            assert not running.requests.answered

    run(main())


def test_a_handshake_that_does_not_end_is_ended(run: Run, authority: Authority) -> None:
    async def main() -> None:
        async with gateway(client_tls=server_context(authority), authentication_timeout_ms=100) as running:
            client = await running.connect()
            await client.send(b"\x16\x03\x01")
            assert await client.ended() == b""

    run(main())


def test_a_kafka_without_tls_ends_the_clients_connection(run: Run, authority: Authority) -> None:
    async def main() -> None:
        async def kafka(peer: Peer) -> None:
            await peer.reader.read(10)
            await peer.send(b"no TLS here, no TLS here")

        async with gateway(kafka, upstream_tls=client_context(authority)) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            assert await client.ended() == b""

    run(main())


def test_a_client_that_asks_for_new_keys_and_does_not_read_is_disconnected(
    run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def with_little_room(peer: socket.socket) -> None:
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    monkeypatch.setattr(channel, "_configure", with_little_room)

    async def main() -> None:
        async with gateway(client_tls=server_context(authority)) as running:
            plain = socket.socket()
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect((HOST, running.brokers.base + 2))
            flooding = asyncio.get_running_loop().create_task(asyncio.to_thread(flood, plain))
            await until(lambda: running.router.connection_count == 1 or flooding.done(), "not connected")
            other = await running.connect(ssl=client_context(authority), server_hostname=HOST)
            slowest = 0.0
            while not flooding.done():
                began = time.monotonic()
                await other.send(request(LOCAL, 1))
                await other.reply()
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.01)
            assert await flooding
            assert slowest < 5
            other.close()
            await running.empty()

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert "asks for new TLS keys and does not read the answers" in caplog.text


def flood(plain: socket.socket) -> bool:
    """Whether the connection was closed."""
    updater = KeyUpdater(plain)
    try:
        return not all(updater.ask_for_new_keys() for _ in range(1_000_000))
    finally:
        updater.close()


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_client_certificates_are_refused_with_a_sentence(authority: Authority, client_auth: str) -> None:
    context = server_context(authority)
    context.ssl_context.verify_mode = ssl.CERT_OPTIONAL if client_auth == "requested" else ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="set ssl.client.auth to none".replace(".", r"\.")):
        Router(FakeBrokers({}, 0), FakeRequests(), RouterSettings(listen=Address(HOST, 1)), context)
