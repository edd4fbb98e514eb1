"""The exceptions of the gateway's Kafka client. Each message says what was asked, what was found and what to do."""

from __future__ import annotations

from typing import Final

from holdfast.wire.error_codes import ErrorCode


class KafkaUnreachable(Exception):
    """Not connected, the connection was lost, or no answer came in time. The same call may succeed later."""


class KafkaRefused(Exception):
    """A broker answered with an error. Do not retry it without looking at the code.

    TLS has no error codes of Kafka's. A certificate that is not accepted counts as SASL_AUTHENTICATION_FAILED, as both
    are authentication errors in Kafka's own clients.
    """

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code: Final = code


class KafkaSetupError(Exception):
    """The gateway cannot work with this cluster or these options; the message is one sentence for the operator."""
