"""SASL on a connection to a broker: SaslHandshake, then SaslAuthenticate until the mechanism is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from holdfast.client.addresses import Address
from holdfast.client.errors import AuthenticationFailed, error_code
from holdfast.client.sasl import Sasl
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode

Ask = Callable[[Any], Awaitable[Any]]
"""Sends a request on the connection and returns the response. Any: each request has its own type of response."""


async def authenticate(ask: Ask, sasl: Sasl, address: Address) -> int:
    """Returns the session's lifetime in milliseconds, or 0 (KIP-368). Raises KafkaRefused.

    Each step of the mechanism runs in a thread: SCRAM computes for milliseconds, and as long as a broker likes.
    """
    try:
        exchange = await asyncio.to_thread(sasl.begin)
        await _choose_mechanism(ask, sasl.mechanism, address)
        lifetime_ms = 0
        token = await asyncio.to_thread(_next_token, exchange, None)
        while token is not None:
            response: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(token))
            if response.error_code:
                code = error_code(response.error_code)
                why = response.error_message or "without a reason"
                raise KafkaRefused(f"{address}: SASL {sasl.mechanism} failed ({code.name}): {why}", code)
            lifetime_ms = response.session_lifetime_ms
            token = await asyncio.to_thread(_next_token, exchange, response.auth_bytes)
    except AuthenticationFailed as failure:
        raise KafkaRefused(f"{address}: {failure}", ErrorCode.SASL_AUTHENTICATION_FAILED) from failure
    return lifetime_ms


def _next_token(exchange: Generator[bytes, bytes, None], received: bytes | None) -> bytes | None:
    """The next token to send; None when the exchange is complete. A future cannot hold StopIteration."""
    try:
        return next(exchange) if received is None else exchange.send(received)
    except StopIteration:
        return None


async def _choose_mechanism(ask: Ask, mechanism: str, address: Address) -> None:
    response: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism))
    if not response.error_code:
        return
    code = error_code(response.error_code)
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        why = "this listener has no SASL: set security.protocol to PLAINTEXT or SSL, or use a listener that has SASL"
    elif code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        why = f"the broker takes {', '.join(response.mechanisms) or 'none'}: set sasl.mechanism to one of them"
    else:
        why = "SaslHandshake was refused"
    raise KafkaRefused(f"{address}: SASL {mechanism} cannot be used ({code.name}): {why}", code)
