"""SaslAuthenticate after authentication, or on a listener without SASL: rejected."""

from __future__ import annotations

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.error_codes import ErrorCode


@handler(SASL_AUTHENTICATE)
def sasl_authenticate(
    services: Services,  # noqa: ARG001
    request: SaslAuthenticateRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
