"""Authentication passes through to Kafka, and what the gateway learns from it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_response, encode_request, encode_response_parts
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import (
    FORWARDED,
    LOCAL,
    FakeRequests,
    Gateway,
    Peer,
    answer_all,
    gateway,
    request,
    response,
    until,
)

PLAIN_TOKEN = b"\0alice\0secret"


def encoded(message: Any, version: int, correlation_id: int) -> bytes:
    parts: list[Any] = encode_response_parts(message, version, correlation_id)
    return b"".join(parts)


class SaslKafka:
    """Answers the tokens of one exchange by the script, then every request."""

    def __init__(self, *answers: bytes | ErrorCode, version: int = 2, lifetime_ms: int = 0) -> None:
        self.answers = list(answers)
        self.version = version
        self.lifetime_ms = lifetime_ms
        self.tokens: list[bytes] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            frame = await peer.frame()
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == SASL_HANDSHAKE.key:
                await peer.send(encoded(SaslHandshakeResponse(0, ["PLAIN"]), version, correlation_id))
                if version == 0:
                    await self._raw(peer)
            elif key == SASL_AUTHENTICATE.key:
                await self._step(peer, version, correlation_id)
            else:
                await peer.send(response(correlation_id, b"kafka"))

    async def _step(self, peer: Peer, version: int, correlation_id: int) -> None:
        answer = self.answers.pop(0)
        if isinstance(answer, ErrorCode):
            refusal = SaslAuthenticateResponse(error_code=answer, error_message="no", auth_bytes=b"")
            await peer.send(encoded(refusal, version, correlation_id))
            raise ConnectionError
        accepted = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self.lifetime_ms)
        await peer.send(encoded(accepted, version, correlation_id))

    async def _raw(self, peer: Peer) -> None:
        while self.answers:
            self.tokens.append(await peer.frame())
            answer = self.answers.pop(0)
            if isinstance(answer, ErrorCode):
                raise ConnectionError
            await peer.send(struct.pack(">i", len(answer)) + answer)


async def handshake(client: Peer, mechanism: str = "PLAIN", version: int = 1) -> int:
    await client.send(encode_request(SaslHandshakeRequest(mechanism), version, 1, "test"))
    found = decode_response(SASL_HANDSHAKE, version, await client.frame())[1]
    return int(found.error_code)


async def step(client: Peer, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    await client.send(encode_request(SaslAuthenticateRequest(token), version, 2, "test"))
    found = decode_response(SASL_AUTHENTICATE, version, await client.frame())[1]
    assert isinstance(found, SaslAuthenticateResponse)
    return found


async def principal(running: Gateway, client: Peer) -> str:
    """As the gateway's own answers see it."""
    await client.send(request(LOCAL, 3))
    assert await client.reply() == (3, b"local")
    return running.requests.clients[-1].session.principal


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_name_counts_when_kafka_has_accepted_it(run: Run, version: int) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            assert await handshake(client) == 0
            assert (await step(client, PLAIN_TOKEN, version)).error_code == 0
            assert await principal(running, client) == "User:alice"
            await client.send(request(FORWARDED, 4))
            assert await client.reply() == (4, b"kafka")

    run(main())


def test_scram_is_complete_with_kafkas_last_message(run: Run) -> None:
    async def main() -> None:
        kafka = SaslKafka(b"r=nonce,s=c2FsdA==,i=4096", b"v=signature")
        async with gateway(kafka, upstream_uses_sasl=True) as running:
            client = await running.connect()
            assert await handshake(client, "SCRAM-SHA-512") == 0
            assert (await step(client, b"n,,n=al=2Cice,r=nonce")).auth_bytes == b"r=nonce,s=c2FsdA==,i=4096"
            assert running.connection.needs_authentication
            assert (await step(client, b"c=biws,r=nonce,p=proof")).auth_bytes == b"v=signature"
            assert await principal(running, client) == "User:al,ice"

    run(main())


@pytest.mark.parametrize("tokens", [[PLAIN_TOKEN], [b"n,,n=alice,r=nonce", b"c=biws,r=nonce,p=proof"]])
def test_tokens_without_a_header_follow_the_oldest_handshake(run: Run, tokens: list[bytes]) -> None:
    async def main() -> None:
        answers = [b""] if len(tokens) == 1 else [b"r=nonce,s=c2FsdA==,i=4096", b"v=signature"]
        kafka = SaslKafka(*answers)
        async with gateway(kafka, upstream_uses_sasl=True) as running:
            client = await running.connect()
            assert await handshake(client, "PLAIN" if len(tokens) == 1 else "SCRAM-SHA-256", version=0) == 0
            for token, answer in zip(tokens, answers, strict=True):
                await client.send(struct.pack(">i", len(token)) + token)
                assert await client.frame() == answer
            assert kafka.tokens == tokens
            assert await principal(running, client) == "User:alice"

    run(main())


def test_a_refusal_of_kafka_reaches_the_client_and_ends_its_connection(run: Run) -> None:
    async def main() -> None:
        kafka = SaslKafka(*[ErrorCode.SASL_AUTHENTICATION_FAILED] * 20)
        async with gateway(kafka, upstream_uses_sasl=True, authentication_timeout_ms=60_000) as running:
            for _ in range(20):  # Kafka's end may be noticed before or after its response was read
                client = await running.connect()
                await handshake(client)
                assert (await step(client, PLAIN_TOKEN)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert await client.ended() == b""
            await running.empty()

    run(main())


def test_a_refusal_of_a_token_without_a_header_ends_the_connection(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(ErrorCode.SASL_AUTHENTICATION_FAILED), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await handshake(client, version=0)
            await client.send(struct.pack(">i", len(PLAIN_TOKEN)) + PLAIN_TOKEN)
            assert await client.ended() == b""

    run(main())


def test_a_mechanism_without_a_name_is_refused_and_another_may_follow(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            assert await handshake(client, "GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert not running.kafka.peers
            assert await handshake(client, "PLAIN") == 0

    run(main())


def test_a_token_without_a_name_is_answered_and_never_reaches_kafka(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await handshake(client, "SCRAM-SHA-256")
            found = await step(client, b"n,,n=id,r=nonce,tokenauth=true")
            assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "delegation tokens" in (found.error_message or "")
            assert await client.ended() == b""

    run(main())


@pytest.mark.parametrize("key", [LOCAL, FORWARDED, 0, 3])
def test_nothing_else_is_served_before_authentication(run: Run, key: int) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await client.send(request(key, 1))
            assert await client.ended() == b""
            assert not running.requests.answered
            assert not running.kafka.peers

    run(main())


def test_requests_sent_with_the_tokens_wait_for_the_authentication(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await client.send(
                encode_request(SaslHandshakeRequest("PLAIN"), 1, 1, "test"),
                encode_request(SaslAuthenticateRequest(PLAIN_TOKEN), 2, 2, "test"),
                request(LOCAL, 3),
                request(FORWARDED, 4),
            )
            assert [(await client.reply())[0] for _ in range(4)] == [1, 2, 3, 4]
            assert running.requests.clients[0].session.principal == "User:alice"

    run(main())


def test_group_requests_end_with_the_session_unless_the_client_authenticates_again(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b"", b"", lifetime_ms=400), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await handshake(client)
            await step(client, PLAIN_TOKEN)
            authentication = running.connection._authentication
            await until(lambda: authentication.has_expired, "the session does not end")
            await handshake(client)
            await step(client, PLAIN_TOKEN)
            assert await principal(running, client) == "User:alice"
            await until(lambda: authentication.has_expired, "the session does not end")
            await client.send(request(LOCAL, 9))
            assert await client.ended() == b""

    run(main())


def test_without_sasl_kafka_itself_answers_a_handshake(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        frame = await peer.frame()
        correlation_id = struct.unpack_from(">i", frame, 4)[0]
        await peer.send(encoded(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, []), 1, correlation_id))
        await answer_all(peer)

    async def main() -> None:
        async with gateway(kafka) as running:
            client = await running.connect()
            assert await handshake(client) == ErrorCode.ILLEGAL_SASL_STATE
            await client.send(request(FORWARDED, 4))
            assert await client.reply() == (4, b"kafka")
            assert await principal(running, client) == "User:ANONYMOUS"

    run(main())


def test_an_idle_connection_that_kafka_closes_still_serves_the_gateways_own_requests(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), requests=FakeRequests(), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await handshake(client)
            await step(client, PLAIN_TOKEN)
            running.kafka.peers[0].close()
            upstream = running.connection._upstream
            await until(lambda: not upstream.is_open, "the end of Kafka's connection is not noticed")
            assert await principal(running, client) == "User:alice"
            await client.send(request(FORWARDED, 4))  # another connection to Kafka would not be authenticated
            assert await client.ended() == b""

    run(main())


def test_a_large_token_is_not_read(run: Run) -> None:
    async def main() -> None:
        async with gateway(SaslKafka(b""), upstream_uses_sasl=True) as running:
            client = await running.connect()
            await client.send(struct.pack(">ihhi", 1 << 20, SASL_AUTHENTICATE.key, 2, 1))
            assert await client.ended() == b""

    run(main())
