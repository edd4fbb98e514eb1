"""SaslHandshake: refused, since the listener is PLAINTEXT and there is nothing to authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(SASL_HANDSHAKE)
def sasl_handshake(broker: Broker, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:  # noqa: ARG001
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
