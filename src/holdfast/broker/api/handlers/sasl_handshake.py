"""SaslHandshake after authentication, or on a listener without SASL: rejected."""

from __future__ import annotations

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode


@handler(SASL_HANDSHAKE)
def sasl_handshake(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:  # noqa: ARG001
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
