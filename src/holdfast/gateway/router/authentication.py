"""Following the SASL authentication of a client, which passes through the gateway to Kafka.

Kafka decides. The gateway reads the name from the client's tokens, and takes it when Kafka has accepted them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final

from holdfast.broker.api.request import ClientSession
from holdfast.gateway.router.sasl_names import MECHANISMS, NameReader, UnknownName, name_reader
from holdfast.wire.apis.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_request_header, decode_response, encode_response_parts
from holdfast.wire.message import decode

Exchange = Callable[[bytes, int | None], Awaitable[bytes]]
"""Sends a whole request with this correlation id to Kafka; gets the response without its length."""

_FIRST_WITH_REQUESTS: Final = 1
"""SaslHandshake v0 is followed by tokens without a header, v1 by SaslAuthenticate requests."""

_length = Struct(">i").pack


class ReplyAndClose(Exception):
    """The client gets this reply, and then its connection is closed. The text is for the log."""

    def __init__(self, reply: bytes, reason: str) -> None:
        super().__init__(reason)
        self.reply = reply


class Authentication:
    def __init__(
        self,
        session: ClientSession,
        exchange: Exchange,
        *,
        is_required: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._exchange = exchange
        self._now = now
        self._names: NameReader | None = None
        self._expires = float("inf")
        self.is_complete = not is_required
        self.expects_token = False
        """The next frame is a token without a header."""

    @property
    def has_expired(self) -> bool:
        """KIP-368: the client has not authenticated again in time. Kafka then answers no more requests."""
        return self._now() >= self._expires

    async def handshake(self, frame: bytes) -> bytes:
        """Answers a SaslHandshake request."""
        _, version, correlation_id, _, position = decode_request_header(frame)
        mechanism = decode(SaslHandshakeRequest, version, frame, position).mechanism
        self._names = name_reader(mechanism)
        if self._names is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return _encoded(
                SaslHandshakeResponse(error_code=code, mechanisms=list(MECHANISMS)), version, correlation_id
            )
        answered = await self._exchange(_framed(frame), correlation_id)
        response: SaslHandshakeResponse
        _, response = decode_response(SASL_HANDSHAKE, version, answered)
        self.expects_token = version < _FIRST_WITH_REQUESTS and response.error_code == ErrorCode.NONE
        return _framed(answered)

    async def authenticate(self, frame: bytes) -> bytes:
        """Answers a SaslAuthenticate request."""
        _, version, correlation_id, _, position = decode_request_header(frame)
        token = bytes(decode(SaslAuthenticateRequest, version, frame, position).auth_bytes)
        if self._names is not None:
            try:
                self._names.client_sent(token)
            except UnknownName as error:
                text = str(error)
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                refusal = SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
                raise ReplyAndClose(_encoded(refusal, version, correlation_id), text) from None
        answered = await self._exchange(_framed(frame), correlation_id)
        response: SaslAuthenticateResponse
        _, response = decode_response(SASL_AUTHENTICATE, version, answered)
        if response.error_code == ErrorCode.NONE:
            self._accepted(bytes(response.auth_bytes), response.session_lifetime_ms)
        return _framed(answered)

    async def token(self, frame: bytes) -> bytes:
        """Answers a token without a header. If Kafka does not accept it, it closes the connection."""
        if self._names is not None:
            try:
                self._names.client_sent(frame)
            except UnknownName as error:
                raise ReplyAndClose(b"", str(error)) from None
        answered = await self._exchange(_framed(frame), None)
        self._accepted(answered, 0)
        return _framed(answered)

    def _accepted(self, token: bytes, lifetime_ms: int) -> None:
        """Kafka has accepted a token of the client and sends this one."""
        name = self._names.kafka_answered(token) if self._names is not None else None
        if name is None:
            return
        self._names = None
        self.expects_token = False
        self.is_complete = True
        self._expires = self._now() + lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")
        self._session.authenticated(f"User:{name}")


def _framed(frame: bytes) -> bytes:
    return _length(len(frame)) + frame


def _encoded(response: Any, version: int, correlation_id: int) -> bytes:
    parts: list[Any] = encode_response_parts(response, version, correlation_id)
    return b"".join(parts)
