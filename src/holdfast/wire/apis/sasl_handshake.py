"""SaslHandshake: choose a SASL mechanism.

After v0 the mechanism's tokens are sent without a header, after v1 in SaslAuthenticate requests. Never flexible.
"""

from holdfast.wire.fields import array, int16, string
from holdfast.wire.message import Api, request, response

SASL_HANDSHAKE = Api(17, "SaslHandshake", versions=(0, 1))


@request(SASL_HANDSHAKE)
class SaslHandshakeRequest:
    mechanism: str = string()


@response(SASL_HANDSHAKE)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array(string())
