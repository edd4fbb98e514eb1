"""The requests that are served before authentication: ApiVersions, SaslHandshake and SaslAuthenticate.

A failure is answered with a delay (`connection.failed.authentication.delay.ms`) and closes the connection, so that
passwords cannot be guessed fast. There is no reauthentication, and sessions do not expire (KIP-368: lifetime 0).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from holdfast.broker.api.handlers.api_versions import api_versions
from holdfast.broker.api.registry import Handler
from holdfast.broker.api.replies import ReplyAndClose
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.sasl import AuthenticationFailed, begin_exchange
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

FIRST_WITH_WRAPPED_TOKENS: Final = 1


async def sasl_handshake(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> Any:
    session = context.session
    mechanisms = list(session.listener.mechanisms)
    if session.sasl_exchange is not None:
        return await _delayed_failure(
            services, SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), "a second SaslHandshake"
        )
    if context.api_version < FIRST_WITH_WRAPPED_TOKENS:
        # Tokens without a header around them, as before Kafka 1.0.
        response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_VERSION, mechanisms)
        return await _delayed_failure(services, response, "SaslHandshake version 0; served is 1")
    if request.mechanism not in mechanisms or services.authorizer is None:
        response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
        return await _delayed_failure(services, response, f"SASL mechanism {request.mechanism[:100]!r} is not enabled")
    compare = partial(services.authorizer.password_verifier.verify, session.client_host)
    session.sasl_exchange = begin_exchange(request.mechanism, services.authorizer.credential, compare)
    return SaslHandshakeResponse(ErrorCode.NONE, mechanisms)


async def sasl_authenticate(services: Services, request: SaslAuthenticateRequest, context: RequestContext) -> Any:
    session = context.session
    if session.sasl_exchange is None:
        message = "SaslAuthenticate request received before a SaslHandshake"
        return await _delayed_failure(
            services, SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message), message
        )
    try:
        answer = await session.sasl_exchange.evaluate(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failure))
        return await _delayed_failure(services, response, f"authentication failed: {failure.reason}")
    if answer.username is not None:
        session.authenticated(f"User:{answer.username}")
        logger.debug("%s is User:%s", session.client_host, answer.username)
    return SaslAuthenticateResponse(ErrorCode.NONE, None, answer.token, 0)


async def _delayed_failure(services: Services, response: Any, reason: str) -> ReplyAndClose:
    await asyncio.sleep(services.config.connection_failed_authentication_delay_ms / 1000)
    return ReplyAndClose(response, reason)


def _entry(api: Any, function: Any) -> Handler:
    return Handler(api, function, api.versions, api.versions)


PRE_AUTH_HANDLERS: Final = {
    entry.api.key: entry
    for entry in (
        _entry(API_VERSIONS, api_versions),
        _entry(SASL_HANDSHAKE, sasl_handshake),
        _entry(SASL_AUTHENTICATE, sasl_authenticate),
    )
}
