"""TLS and SASL towards a Holdfast in this process and fakes. tests/gateway/test_kafka_client.py uses a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.authorization.users_file import Users, write_users
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.client.addresses import Address
from holdfast.gateway.kafka import connection as module
from holdfast.gateway.kafka.connection import connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from tests.support.certificates import Authority, Certificate, make_authority
from tests.unit.gateway.kafka.conftest import Run
from tests.unit.gateway.kafka.fake_broker import FakeBroker, Request

USER, PASSWORD = "gateway", "its-secret, with=signs"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


@dataclass(frozen=True)
class World:
    authority: Authority
    untrusted: Authority
    broker: Certificate
    client: Certificate
    users: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("certificates")
    authority = make_authority(directory)
    users = directory / "users.json"
    write_users(users, Users(super_users=frozenset({f"User:{USER}"})).with_user(USER, PASSWORD, 4096))
    return World(
        authority,
        make_authority(directory, "unknown"),
        authority.sign("broker", "IP:127.0.0.1"),
        authority.sign("client", "DNS:client"),
        users,
    )


@contextlib.asynccontextmanager
async def holdfast(world: World, path: Path, protocol: str, **settings: str) -> AsyncIterator[Address]:
    config = BrokerConfig.of(
        {
            "listeners": f"{protocol}://127.0.0.1:0",
            "ssl.certificate.location": str(world.broker.certificate),
            "ssl.key.location": str(world.broker.key),
            "ssl.truststore.location": str(world.authority.certificate),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "users.file": str(world.users),
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    broker = Broker(config, path)
    await broker.start()
    try:
        yield Address(*broker.address)
    finally:
        await broker.stop()


async def ask_for_brokers(address: Address, settings: Mapping[str, Any]) -> list[int]:
    connection = await connect(address, KafkaClientSettings.from_config(settings))
    try:
        response = await connection.ask(MetadataRequest([], allow_auto_topic_creation=False))
        return [broker.node_id for broker in response.brokers]
    finally:
        connection.close()


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls(run: Run, world: World, tmp_path: Path, mechanism: str) -> None:
    async def scenario() -> None:
        async with holdfast(world, tmp_path, "SASL_SSL") as address:
            settings = PLAIN | {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "ssl.ca.location": str(world.authority.certificate),
            }
            assert await ask_for_brokers(address, settings) == [1]

            with pytest.raises(KafkaRefused) as raised:
                await ask_for_brokers(address, settings | {"sasl.password": "wrong"})
            assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert str(address) in str(raised.value)
            with pytest.raises(KafkaRefused, match="certificate is not accepted"):
                await ask_for_brokers(address, settings | {"ssl.ca.location": str(world.untrusted.certificate)})
            with pytest.raises(KafkaUnreachable, match="is this a Kafka listener for PLAINTEXT"):
                await ask_for_brokers(address, {})

    run(scenario())


def test_client_certificates(run: Run, world: World, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with holdfast(world, tmp_path, "SSL", ssl_client_auth="required") as address:
            settings = {"security.protocol": "SSL", "ssl.ca.location": str(world.authority.certificate)}
            own = {
                "ssl.certificate.location": str(world.client.certificate),
                "ssl.key.location": str(world.client.key),
            }
            assert await ask_for_brokers(address, settings | own) == [1]
            # The broker's refusal may arrive as an alert, or be lost with the connection.
            with pytest.raises((KafkaRefused, KafkaUnreachable), match=r"client certificate|ended TLS"):
                await ask_for_brokers(address, settings)

    run(scenario())


def test_tls_towards_a_listener_without_it(run: Run, world: World, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with holdfast(world, tmp_path, "PLAINTEXT") as address:
            settings = {"security.protocol": "SSL", "ssl.ca.location": str(world.authority.certificate)}
            with pytest.raises(KafkaUnreachable, match="does this listener speak TLS"):
                await ask_for_brokers(address, settings)

    run(scenario())


def test_a_tls_handshake_that_never_ends(run: Run, world: World) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.transport.abort()

    async def scenario() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(world.authority.certificate)}
        address = Address(*server.sockets[0].getsockname())
        with pytest.raises(KafkaUnreachable, match=r"not connected within 0\.3 s"):
            await connect(address, KafkaClientSettings.from_config(settings), timeout_s=0.3)
        server.close()
        await server.wait_closed()

    run(scenario())


# -- fakes -------------------------------------------------------------------------------------------------------------


def accepts(_: Request) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(mechanisms=["PLAIN"])


def session(lifetime_ms: int) -> Any:
    return lambda _: SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)


def echo(request: Request) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.message.generation_id)


SETTINGS = KafkaClientSettings.from_config(PLAIN)


def test_large_responses_over_tls_arrive_whole(run: Run, world: World) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(world.broker.certificate, world.broker.key)
    mechanisms = [f"MECHANISM-{number}" for number in range(50_000)]

    async def scenario() -> None:
        answer = (SASL_HANDSHAKE, lambda _: SaslHandshakeResponse(mechanisms=mechanisms))
        async with FakeBroker(answer, (SASL_AUTHENTICATE, session(0)), (HEARTBEAT, echo), tls=context) as broker:
            settings = PLAIN | {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(world.authority.certificate),
            }
            connection = await connect(broker.address, KafkaClientSettings.from_config(settings))
            assert (await connection.ask(HeartbeatRequest("group", 3, "member"))).throttle_time_ms == 3
            connection.close()

    run(scenario())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "the broker takes GSSAPI: set sasl.mechanism"),
        (ErrorCode.ILLEGAL_SASL_STATE, "this listener has no SASL"),
    ],
)
def test_a_mechanism_that_is_refused(run: Run, code: ErrorCode, text: str) -> None:
    async def scenario() -> None:
        async with FakeBroker((SASL_HANDSHAKE, lambda _: SaslHandshakeResponse(code, ["GSSAPI"]))) as broker:
            with pytest.raises(KafkaRefused, match=text) as raised:
                await connect(broker.address, SETTINGS)
            assert raised.value.code == code

    run(scenario())


def test_a_broker_that_wants_tokens_without_frames_is_refused(run: Run) -> None:
    def old(_: Request) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(SASL_HANDSHAKE.key, 0, 0)])

    async def scenario() -> None:
        async with FakeBroker((API_VERSIONS, old)) as broker:
            with pytest.raises(KafkaRefused, match="SaslHandshake is needed in version 1"):
                await connect(broker.address, SETTINGS)

    run(scenario())


def test_a_session_is_renewed_before_its_end_and_requests_wait_for_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST_REAUTHENTICATION_S", 0.2)
    under_way: list[str] = []

    def handshake(request: Request) -> SaslHandshakeResponse:
        under_way.append("exchange")
        return accepts(request)

    def authenticated(request: Request) -> SaslAuthenticateResponse:
        under_way.append("end")
        return SaslAuthenticateResponse(session_lifetime_ms=300)

    def heartbeat(request: Request) -> HeartbeatResponse:
        assert under_way[-1] == "end", "a request within the exchange"
        return echo(request)

    async def scenario() -> None:
        answers = ((SASL_HANDSHAKE, handshake), (SASL_AUTHENTICATE, authenticated), (HEARTBEAT, heartbeat))
        async with FakeBroker(*answers) as broker:
            connection = await connect(broker.address, SETTINGS)
            answered = 0
            while under_way.count("end") < 4:
                futures = [connection.send(HeartbeatRequest("group", number, "member")) for number in range(20)]
                found = [(await future).throttle_time_ms for future in futures]
                assert found == list(range(20))
                answered += 20
            sent = [request.message.generation_id for request in broker.requests if request.api is HEARTBEAT]
            assert sent == list(range(20)) * (answered // 20)
            assert broker.connections == 1
            connection.close()

    run(scenario())


def test_a_session_that_cannot_be_renewed_ends_the_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_REAUTHENTICATION_S", 0.05)

    async def scenario() -> None:
        async with FakeBroker((SASL_HANDSHAKE, accepts), (SASL_AUTHENTICATE, session(60)), (HEARTBEAT, echo)) as broker:
            connection = await connect(broker.address, SETTINGS)
            lost = asyncio.Event()
            connection.on_lost(lost.set)
            broker.answer(
                SASL_AUTHENTICATE,
                lambda _: SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no longer"),
            )
            await lost.wait()
            with pytest.raises(KafkaUnreachable, match=r"the session could not be renewed: .* no longer"):
                await connection.ask(HeartbeatRequest("group", 1, "member"))

    run(scenario())


def test_requests_that_wait_for_a_renewal_fail_with_the_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_REAUTHENTICATION_S", 0.05)

    async def scenario() -> None:
        async with FakeBroker((SASL_HANDSHAKE, accepts), (SASL_AUTHENTICATE, session(60)), (HEARTBEAT, echo)) as broker:
            connection = await connect(broker.address, SETTINGS)
            broker.answer(SASL_HANDSHAKE, lambda _: None)
            broker.is_asked.clear()
            await broker.is_asked.wait()
            waiting = connection.send(HeartbeatRequest("group", 1, "member"))
            late = connection.send(HeartbeatRequest("group", 2, "member"), timeout_s=0.1)
            with pytest.raises(KafkaUnreachable, match=r"no answer to Heartbeat within 0\.1 s"):
                await late
            with pytest.raises(KafkaUnreachable):
                await waiting
            assert broker.asked(HEARTBEAT) == 0

    run(scenario())


def test_closing_during_a_renewal_leaves_nothing_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_REAUTHENTICATION_S", 0.05)

    async def scenario() -> None:
        async with FakeBroker((SASL_HANDSHAKE, accepts), (SASL_AUTHENTICATE, session(60))) as broker:
            connection = await connect(broker.address, SETTINGS)
            broker.answer(SASL_HANDSHAKE, lambda _: None)
            broker.is_asked.clear()
            await broker.is_asked.wait()
            connection.close()

    run(scenario())
