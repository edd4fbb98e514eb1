"""SaslHandshake and SaslAuthenticate on a PLAINTEXT listener, as Apache Kafka 4.3 answers them."""

import pytest

from holdfast.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.handler_broker import HandlerBroker

ILLEGAL_SASL_STATE = 34


@pytest.mark.parametrize("version", range(2))
def test_there_is_no_mechanism_to_choose(broker: HandlerBroker, version: int) -> None:
    response = broker.ask(SaslHandshakeRequest("PLAIN"), version)

    assert response == SaslHandshakeResponse(ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", range(3))
def test_there_is_nothing_to_authenticate(broker: HandlerBroker, version: int) -> None:
    response = broker.ask(SaslAuthenticateRequest(b"\0me\0secret"), version)

    message = "SaslAuthenticate request received after successful authentication"
    assert response == SaslAuthenticateResponse(ILLEGAL_SASL_STATE, message, b"", 0)
