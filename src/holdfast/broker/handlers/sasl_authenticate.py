"""SaslAuthenticate: refused, since the listener is PLAINTEXT and there is nothing to authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(SASL_AUTHENTICATE)
def sasl_authenticate(
    broker: Broker,  # noqa: ARG001
    request: SaslAuthenticateRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
