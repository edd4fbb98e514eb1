"""How a client proves who it is: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), the server's half.

A user who is not there is asked the same questions as one who is, and refused after the same work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped]  # it has no types

from holdfast.broker.security.decoys import PLAIN
from holdfast.broker.security.scram import Credential

FindCredential = Callable[[str, str], Credential]
"""(mechanism, user) → the user's credential, or a decoy. For PLAIN: the strongest hash that the user has."""
ComparePassword = Callable[[Credential, str], Awaitable[bool]]
"""Whether the credential is of the password. Takes a while, off the event loop."""

_PLAIN_REFUSED: Final = "Authentication failed: Invalid username or password"
MAX_SCRAM_BYTES: Final = 1024
"""The longest name that there can be, with each of its signs escaped, a nonce and a proof. Names are prepared for
comparison on the event loop, and for some that takes as long as the square of their length."""


class AuthenticationFailed(Exception):
    """The client has not proved who it is. The text goes to the client, in Kafka's words, and tells nobody whether it
    was the name or the password; `reason` is for the log and does not either."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message


class Answer(NamedTuple):
    token: bytes
    username: str | None = None
    """Whoever the client has now proved to be."""


class Exchange:
    """One attempt. `answer` is called with each of the client's tokens."""

    async def answer(self, token: bytes) -> Answer:
        raise NotImplementedError


def begin_exchange(mechanism: str, find: FindCredential, compare: ComparePassword) -> Exchange:
    return PlainExchange(find, compare) if mechanism == PLAIN else ScramExchange(mechanism, find)


class PlainExchange(Exchange):
    def __init__(self, find: FindCredential, compare: ComparePassword) -> None:
        self._find = find
        self._compare = compare

    async def answer(self, token: bytes) -> Answer:
        username, password = _parse_plain(token)
        # The iterations take some ten milliseconds of a processor.
        if not await self._compare(self._find(PLAIN, username), password):
            raise AuthenticationFailed(_PLAIN_REFUSED, "invalid user or password")
        return Answer(b"", username)


def _parse_plain(token: bytes) -> tuple[str, str]:
    try:
        authorization, username, password = token.decode().split("\0")
    except ValueError:
        raise AuthenticationFailed("Invalid SASL/PLAIN response: expected 3 tokens") from None
    if not username:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    if authorization not in ("", username):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return username, password


class ScramExchange(Exchange):
    def __init__(self, mechanism: str, find: FindCredential, nonce: str | None = None) -> None:
        """The nonce is drawn at random; only a test knows it beforehand."""
        self._mechanism = mechanism
        self._find = find
        self._username: str | None = None
        self._server = ScramMechanism(mechanism).make_server(self._credential, s_nonce=nonce)

    def _credential(self, username: str) -> tuple[bytes, bytes, bytes, int]:
        self._username = username
        found = self._find(self._mechanism, username)
        return found.salt, found.stored_key, found.server_key, found.iterations

    async def answer(self, token: bytes) -> Answer:
        try:
            if len(token) > MAX_SCRAM_BYTES or not token.isascii():
                raise ValueError("nobody has such a name")
            if self._username is None:
                self._server.set_client_first(token.decode())
                return Answer(self._server.get_server_first().encode())
            self._server.set_client_final(token.decode())
            return Answer(self._server.get_server_final().encode(), self._username)
        except (ScramException, UnicodeDecodeError, ValueError) as error:
            reason = str(error.server_error.value) if isinstance(error, ScramException) and error.server_error else ""
            raise AuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism,
                reason,
            ) from None
