"""SaslAuthenticate: one step of the chosen SASL mechanism.

v1 adds the session lifetime, before the end of which the client must reauthenticate (KIP-368); v2 is the first flexible
version.
"""

from holdfast.wire.fields import blob, int16, int64, string
from holdfast.wire.message import Api, request, response

SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", versions=(0, 2), flexible=2)


@request(SASL_AUTHENTICATE)
class SaslAuthenticateRequest:
    auth_bytes: bytes = blob()


@response(SASL_AUTHENTICATE)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
