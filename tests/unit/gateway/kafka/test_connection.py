"""One connection: requests go out in order, responses come back to their callers, and every failure ends it cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.client.addresses import Address
from holdfast.client.errors import ConfigError
from holdfast.gateway.kafka import connection as module
from holdfast.gateway.kafka.connection import KafkaConnection, connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api
from tests.support.held_ports import held_port
from tests.unit.gateway.kafka.conftest import Run
from tests.unit.gateway.kafka.fake_broker import Answer, FakeBroker, Hangup, Request, all_versions, framed

SETTINGS = KafkaClientSettings()


def heartbeat(generation: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest("group", generation, "member")


def echo(request: Request) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=request.message.generation_id)


@contextlib.asynccontextmanager
async def connected(broker: FakeBroker) -> AsyncIterator[KafkaConnection]:
    connection = await connect(broker.address, SETTINGS, node_id=1)
    try:
        yield connection
    finally:
        connection.close()


def answering(*answers: tuple[Api, Answer], heartbeat: Answer = echo) -> FakeBroker:
    return FakeBroker((HEARTBEAT, heartbeat), *answers)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_it_says_who_it_is_and_gets_answers(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            response = await connection.ask(heartbeat(5))

            assert response == HeartbeatResponse(throttle_time_ms=5)
            assert {request.client_id for request in broker.requests} == {"holdfast-gateway"}
            first = broker.requests[0]
            assert first.api is API_VERSIONS
            assert first.message.client_software_name == "holdfast"
            assert (connection.node_id, connection.address, connection.is_closed) == (1, broker.address, False)

    run(scenario())


def test_requests_are_pipelined_and_keep_their_order(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            futures = [connection.send(heartbeat(number)) for number in range(500)]
            answers = await asyncio.gather(*futures)

            assert [answer.throttle_time_ms for answer in answers] == list(range(500))
            sent = [request.message.generation_id for request in broker.requests if request.api is HEARTBEAT]
            assert sent == list(range(500))

    run(scenario())


def test_the_highest_common_version_is_used_unless_another_is_asked_for(run: Run) -> None:
    def few_versions(_: Request) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(HEARTBEAT.key, 1, 3), ApiVersion(METADATA.key, 90, 91)])

    async def scenario() -> None:
        async with answering((API_VERSIONS, few_versions)) as broker, connected(broker) as connection:
            await connection.ask(heartbeat())
            await connection.ask(heartbeat(), version=1)
            assert [request.version for request in broker.requests[1:]] == [3, 1]

            assert connection.version_of(HEARTBEAT) == 3
            assert connection.version_of(HEARTBEAT, 2) == 2
            calls: list[Callable[[], Any]] = [
                lambda: connection.version_of(HEARTBEAT, 0),
                lambda: connection.version_of(METADATA),
                lambda: connection.send(heartbeat(), 4),
                lambda: connection.send(MetadataRequest([])),
            ]
            for call in calls:
                with pytest.raises(KafkaRefused, match="has versions") as raised:
                    call()
                assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
            with pytest.raises(KafkaRefused, match="does not have it"):
                connection.version_of(API_VERSIONS)
            assert not connection.is_closed

    run(scenario())


def test_a_request_that_a_version_cannot_carry_is_refused_and_others_are_sent(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            with pytest.raises(KafkaRefused, match="cannot carry"):
                connection.send(HeartbeatRequest("group", 1, "member", "instance"), 0)
            assert await connection.ask(heartbeat(1)) == HeartbeatResponse(throttle_time_ms=1)

    run(scenario())


def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_its_own(run: Run) -> None:
    def old(request: Request) -> Any:
        if request.version <= 2:
            return ApiVersionsResponse(api_keys=[ApiVersion(HEARTBEAT.key, 0, 4)])
        answer = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(API_VERSIONS.key, 0, 2)])
        return framed(Request(request.api, 0, request.correlation_id, None, None), answer)

    async def scenario() -> None:
        async with answering((API_VERSIONS, old)) as broker, connected(broker) as connection:
            assert await connection.ask(heartbeat(1)) == HeartbeatResponse(throttle_time_ms=1)
            assert [request.version for request in broker.requests[:2]] == [API_VERSIONS.versions[1], 2]

    run(scenario())


def test_a_large_response_does_not_block_the_loop(run: Run) -> None:
    partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(10)]
    topics = [MetadataResponseTopic(name=f"topic-{number}", partitions=partitions) for number in range(5000)]

    async def scenario() -> None:
        metadata = MetadataResponse(topics=topics)
        encoded: dict[int, bytes] = {}

        def answer(request: Request) -> bytes:
            # Encoded once, for the loop is that of the client, too.
            if request.version not in encoded:
                encoded[request.version] = framed(request, metadata)
            head, body = encoded[request.version][:4], encoded[request.version][8:]
            return head + struct.pack(">i", request.correlation_id) + body

        async with answering((METADATA, answer)) as broker, connected(broker) as connection:
            await connection.ask(MetadataRequest([]))  # the codecs are made
            asked = asyncio.create_task(connection.ask(MetadataRequest([])))
            turns = 0
            while not asked.done():
                await asyncio.sleep(0)
                turns += 1
            response = await asked

            assert response == metadata
            assert turns > 10

    run(scenario())


# -- failures ----------------------------------------------------------------------------------------------------------


def test_nobody_listens(run: Run) -> None:
    async def scenario() -> None:
        with held_port() as held, pytest.raises(KafkaUnreachable, match="cannot connect: Connection refused"):
            await connect(Address(*held.getsockname()), SETTINGS)

    run(scenario())


def test_a_name_that_does_not_exist(run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(KafkaUnreachable, match="cannot look the name up"):
            await connect(Address("no-such-host.invalid", 9092), SETTINGS)

    run(scenario())


def test_a_server_that_never_answers(run: Run) -> None:
    async def scenario() -> None:
        async with answering((API_VERSIONS, lambda _: None)) as broker:
            began = time.monotonic()
            with pytest.raises(KafkaUnreachable, match=r"no answer to ApiVersions within .* is this a Kafka listener"):
                await connect(broker.address, SETTINGS, timeout_s=0.3)
            assert time.monotonic() - began < 5

    run(scenario())


def test_a_request_without_an_answer_ends_the_connection_and_all_behind_it(run: Run) -> None:
    async def scenario() -> None:
        async with answering(heartbeat=lambda _: None) as broker, connected(broker) as connection:
            long = connection.send(heartbeat(1))
            with pytest.raises(KafkaUnreachable, match=r"no answer to Heartbeat within 0\.2 s$"):
                await connection.send(heartbeat(2), timeout_s=0.2)
            with pytest.raises(KafkaUnreachable, match="no answer"):
                await long
            assert connection.is_closed

    run(scenario())


def test_an_impatient_caller_does_not_end_the_connection_of_others(run: Run) -> None:
    answers: list[bytes] = []

    def late(request: Request) -> bytes | None:
        answers.append(framed(request, echo(request)))
        return b"".join(answers) if len(answers) == 2 else None

    async def scenario() -> None:
        async with answering(heartbeat=late) as broker, connected(broker) as connection:
            with pytest.raises(KafkaUnreachable, match=r"no answer to Heartbeat within 0\.1 s$"):
                await connection.ask(heartbeat(1), timeout_s=0.1)
            assert await connection.ask(heartbeat(2)) == HeartbeatResponse(throttle_time_ms=2)

    run(scenario())


def test_deadlines_are_kept_while_others_are_answered(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            for number in range(5):
                assert await connection.send(heartbeat(number), timeout_s=0.5)
            await asyncio.sleep(0.6)
            assert not connection.is_closed
            broker.answer(HEARTBEAT, lambda _: None)
            with pytest.raises(KafkaUnreachable, match="no answer"):
                await connection.send(heartbeat(), timeout_s=0.1)
            assert connection.is_closed

    run(scenario())


def test_a_cancelled_caller_does_not_disturb_the_others(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            cancelled = connection.send(heartbeat(1))
            kept = connection.send(heartbeat(2))
            cancelled.cancel()

            assert await kept == HeartbeatResponse(throttle_time_ms=2)
            assert not connection.is_closed

    run(scenario())


def test_a_connection_that_is_lost_in_a_response_fails_everything_in_flight(run: Run) -> None:
    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:

            def half(request: Request) -> bytes | None:
                if request.message.generation_id > 0:
                    return None
                asyncio.get_running_loop().call_later(0.05, broker.hang_up)
                return framed(request, HeartbeatResponse())[:7]

            broker.answer(HEARTBEAT, half)
            lost = []
            connection.on_lost(lambda: lost.append(connection.is_closed))
            futures = [connection.send(heartbeat(number)) for number in range(3)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)

            assert [type(outcome) for outcome in outcomes] == [KafkaUnreachable] * 3
            assert "before it answered Heartbeat" in str(outcomes[0])
            assert outcomes[0] is not outcomes[1]
            assert lost == [True]
            with pytest.raises(KafkaUnreachable, match="before it answered"):
                await connection.ask(heartbeat())

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda request: framed(request, HeartbeatResponse(), request.correlation_id + 7), "correlation id"),
        (lambda request: framed(request, HeartbeatResponse())[:4] + struct.pack(">i", -1) + b"\0" * 8, "correlation"),
        (lambda _: struct.pack(">i", 2**31 - 1) + b"more", "a length of 2147483647 bytes"),
        (lambda _: struct.pack(">i", -5), "a length of -5 bytes"),
        (lambda request: struct.pack(">ii", 5, request.correlation_id) + b"\0", "not Heartbeat"),
        (lambda request: 2 * framed(request, HeartbeatResponse()), "where 3 was expected"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "begin with b'HTTP"),
    ],
)
def test_answers_that_are_none_end_the_connection(run: Run, answer: Any, text: str) -> None:
    async def scenario() -> None:
        async with answering(heartbeat=answer) as broker, connected(broker) as connection:
            lost = asyncio.Event()
            connection.on_lost(lost.set)
            futures = [connection.send(heartbeat(number)) for number in range(2)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            await lost.wait()

            assert connection.is_closed
            assert isinstance(outcomes[1], KafkaUnreachable)
            assert text in str(outcomes[1])

    run(scenario())


def test_a_server_of_another_protocol_is_named_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with answering((API_VERSIONS, lambda _: b"\x15\x03\x03\x00\x02\x02\x46")) as broker:
            with pytest.raises(KafkaUnreachable, match=r"TLS, but security\.protocol is PLAINTEXT"):
                await connect(broker.address, SETTINGS)
        async with answering((API_VERSIONS, _hang_up)) as broker:
            with pytest.raises(KafkaUnreachable, match="before it answered ApiVersions; is this a Kafka listener for"):
                await connect(broker.address, SETTINGS)

    run(scenario())


def _hang_up(_: Request) -> None:
    raise Hangup


def test_api_versions_that_are_refused(run: Run) -> None:
    async def scenario() -> None:
        async with answering((API_VERSIONS, lambda _: ApiVersionsResponse(ErrorCode.INVALID_REQUEST))) as broker:
            with pytest.raises(KafkaRefused, match="ApiVersions is answered with INVALID_REQUEST"):
                await connect(broker.address, SETTINGS)

    run(scenario())


def test_closing_fails_requests_in_flight_and_calls_each_action_once(run: Run) -> None:
    async def scenario() -> None:
        async with answering(heartbeat=lambda _: None) as broker:
            connection = await connect(broker.address, SETTINGS)
            called: list[str] = []

            def fails() -> None:
                called.append("first")
                raise ValueError("of the action")

            connection.on_lost(fails)
            connection.on_lost(lambda: called.append("second"))
            future = connection.send(heartbeat())
            connection.close()
            connection.close()

            with pytest.raises(KafkaUnreachable, match="closed by the gateway"):
                await future
            assert called == ["first", "second"]
            late = asyncio.Event()
            connection.on_lost(late.set)
            await late.wait()

    run(scenario())


def test_failures_that_nobody_awaits_are_not_reported(run: Run) -> None:
    reported = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with answering(heartbeat=lambda _: None) as broker:
            connection = await connect(broker.address, SETTINGS)
            connection.send(heartbeat())
            connection.close()
            connection.send(heartbeat())
            gc.collect()

    run(scenario())
    assert reported == []


def test_too_many_requests_in_flight_are_refused_without_harm(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 3)

    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            futures = [connection.send(heartbeat(number)) for number in range(4)]
            with pytest.raises(KafkaUnreachable, match="3 requests are in flight"):
                await futures[3]
            assert [(await future).throttle_time_ms for future in futures[:3]] == [0, 1, 2]
            assert await connection.ask(heartbeat(9)) == HeartbeatResponse(throttle_time_ms=9)

    run(scenario())


def test_a_broker_that_does_not_read_gets_no_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT_BYTES", 1_000_000)
    large = HeartbeatRequest("group", 1, "m" * 30_000)

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        (_, _, correlation_id) = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
        request = Request(API_VERSIONS, API_VERSIONS.versions[1], correlation_id, None, None)
        writer.write(framed(request, all_versions(request)))
        await over.wait()
        writer.transport.abort()

    over = asyncio.Event()

    async def scenario() -> None:
        server = await asyncio.start_server(deaf, "127.0.0.1", 0)
        connection = await connect(Address(*server.sockets[0].getsockname()), SETTINGS)
        outcomes: list[asyncio.Future[Any]] = []
        # The kernel's buffers take some megabytes.
        while len(outcomes) < 4000 and not (outcomes and outcomes[-1].done()):
            outcomes.append(connection.send(large))
            await asyncio.sleep(0)
        assert "does not read" in str(outcomes[-1].exception())
        connection.close()
        over.set()
        server.close()
        await server.wait_closed()

    run(scenario())


def test_a_caller_that_gives_up_while_connecting_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        async with answering((API_VERSIONS, lambda _: None)) as broker:
            connecting = asyncio.create_task(connect(broker.address, SETTINGS))
            await broker.is_asked.wait()
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting

    run(scenario())


def test_sending_costs_little(run: Run) -> None:
    """A limit with much room: it takes about 5 µs."""

    async def scenario() -> None:
        async with answering() as broker, connected(broker) as connection:
            await _send_many(connection, 100)
            least = min([await _send_many(connection, 1000) for _ in range(5)])
            assert least < 0.0003

    run(scenario())


async def _send_many(connection: KafkaConnection, count: int) -> float:
    began = time.process_time()
    futures = [connection.send(heartbeat(number)) for number in range(count)]
    spent = (time.process_time() - began) / count
    await asyncio.gather(*futures)
    return spent


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_those_of_librdkafka() -> None:
    settings = KafkaClientSettings.from_config(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "gateway",
            "sasl.password": "secret",
        }
    )
    assert settings.security.sasl is not None
    assert settings.security.sasl.username == "gateway"
    assert settings.client_id == "holdfast-gateway"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("name", ["sasl.jaas.config", "group.id", "sasl.pasword"])
def test_settings_that_would_have_no_effect_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        KafkaClientSettings.from_config({name: "x"})
