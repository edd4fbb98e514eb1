"""All that a client can ask before it has proved who it is: what we can do, which mechanism, and the proof itself.

A refusal is answered late (`connection.failed.authentication.delay.ms`) and ends the connection, so that passwords
are not guessed fast. There is no second authentication on a connection, and sessions do not end (KIP-368: lifetime 0).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import Handler, LastReply, RequestContext
from holdfast.broker.handlers.api_versions import api_versions
from holdfast.broker.security.sasl import AuthenticationFailed, begin_exchange
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

FIRST_WITH_WRAPPED_TOKENS: Final = 1


async def sasl_handshake(broker: Broker, request: SaslHandshakeRequest, context: RequestContext) -> Any:
    connection = context.connection
    mechanisms = list(connection.door.mechanisms)
    if connection.exchange is not None:
        return await _late(broker, SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), "a second SaslHandshake")
    if context.api_version < FIRST_WITH_WRAPPED_TOKENS:
        # Tokens without a header around them, as before Kafka 1.0.
        response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_VERSION, mechanisms)
        return await _late(broker, response, "SaslHandshake version 0; served is 1")
    if request.mechanism not in mechanisms or broker.users is None:
        response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
        return await _late(broker, response, f"SASL mechanism {request.mechanism[:100]!r} is not enabled")
    compare = partial(broker.users.guesses.matches, connection.client_host)
    connection.exchange = begin_exchange(request.mechanism, broker.users.credential, compare)
    return SaslHandshakeResponse(ErrorCode.NONE, mechanisms)


async def sasl_authenticate(broker: Broker, request: SaslAuthenticateRequest, context: RequestContext) -> Any:
    connection = context.connection
    if connection.exchange is None:
        message = "SaslAuthenticate request received before a SaslHandshake"
        return await _late(broker, SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message), message)
    try:
        answer = await connection.exchange.answer(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failure))
        return await _late(broker, response, f"authentication failed: {failure.reason}")
    if answer.username is not None:
        connection.authenticated(f"User:{answer.username}")
        logger.debug("%s is User:%s", connection.client_host, answer.username)
    return SaslAuthenticateResponse(ErrorCode.NONE, None, answer.token, 0)


async def _late(broker: Broker, response: Any, reason: str) -> LastReply:
    await asyncio.sleep(broker.config.connection_failed_authentication_delay_ms / 1000)
    return LastReply(response, reason)


def _entry(api: Any, function: Any) -> Handler:
    return Handler(api, function, api.versions, api.versions)


DOORWAY: Final = {
    entry.api.key: entry
    for entry in (
        _entry(API_VERSIONS, api_versions),
        _entry(SASL_HANDSHAKE, sasl_handshake),
        _entry(SASL_AUTHENTICATE, sasl_authenticate),
    )
}
