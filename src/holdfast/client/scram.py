"""SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password, and the server proves that it has the
credential.

The exchange is a generator: it yields messages to send, is sent the server's messages, and raises
`AuthenticationFailed` if the server cannot be trusted. scramp computes the proof and checks the server's messages: the
nonce, the salt, the least number of iterations, and the signature. There is no channel binding, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from holdfast.client.errors import AuthenticationFailed

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MIN_ITERATIONS: Final = 4096
"""From RFC 7677, and checked by scramp. With fewer iterations, the password would be easier to guess from the proof."""
MAX_ITERATIONS: Final = 1_000_000
"""About a second of CPU time, so that a hostile server cannot keep the client busy for longer. scramp's own limit is
ten times as high, Kafka's is 16,384."""
MIN_SALT_BYTES: Final = 12
"""Of scramp."""


def scram(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """One exchange. The nonce must be printable, without a comma, and never used before."""
    import scramp  # type: ignore[import-untyped]  # it has no types; only clients with SCRAM wait for the import

    client = _verbatim_client(scramp, mechanism, username, password, nonce)
    server_first = _text((yield client.get_client_first().encode()))
    try:
        client.set_server_first(server_first)
    except scramp.ScramException as error:
        raise _refused_first(error.args[0]) from None
    if int(client.iterations) > MAX_ITERATIONS:
        raise _refused_first(f"it asks for {client.iterations} iterations")
    server_final = _text((yield client.get_client_final().encode()))
    try:
        client.set_server_final(server_final)
    except scramp.ScramException:
        if server_final.startswith("e="):
            why = server_final[2:].split(",")[0][:100]
            raise AuthenticationFailed(f"the broker refuses user or password: {why}") from None
        raise _untrusted(
            "it cannot prove that it knows the password: somebody else may be answering in its place"
        ) from None


class _Verbatim(str):
    """A user name as scramp expects it, without SASLprep."""

    __slots__ = ()

    def escape(self) -> str:
        return self.replace("=", "=3D").replace(",", "=2C")


def _verbatim_client(scramp: Any, mechanism: str, username: str, password: str, nonce: str) -> Any:
    """scramp normalizes names and passwords by SASLprep. Kafka and librdkafka do not, so the keys of a password that
    SASLprep changes or rejects would differ from those that Kafka stored."""
    client = scramp.ScramClient([mechanism], "name", "password", c_nonce=nonce)
    client.username, client.password = _Verbatim(username), password.encode()
    return client


def _refused_first(why: str) -> AuthenticationFailed:
    return _untrusted(
        f"its first message is not accepted ({why[:200]}); accepted are the client's nonce with a suffix, "
        f"{MIN_ITERATIONS} to {MAX_ITERATIONS} iterations, and a salt of at least {MIN_SALT_BYTES} bytes"
    )


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _untrusted("its message is not text") from None


def _untrusted(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"the broker is not trusted in SCRAM: {why}")
