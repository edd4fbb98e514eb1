"""The server's part of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

A client with an unknown user name gets the same exchange as one with a known name, and fails after the same work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from holdfast.broker.authorization.decoy_credentials import PLAIN
from holdfast.broker.authorization.scram import Credential

FindCredential = Callable[[str, str], Credential]
"""(mechanism, user) → the user's credential, or a decoy. For PLAIN: the strongest hash that the user has."""
ComparePassword = Callable[[Credential, str], Awaitable[bool]]
"""Whether the credential matches the password. Runs outside the event loop, because it takes a while."""

_PLAIN_FAILED: Final = "Authentication failed: Invalid username or password"
MAX_SCRAM_BYTES: Final = 1024
"""Enough for the longest name with each character escaped, a nonce and a proof. Names are normalized on the event loop,
which for some names takes time proportional to the square of their length."""


class AuthenticationFailed(Exception):
    """Authentication failed. The text is for the client, in Kafka's words, and does not reveal whether the name or the
    password was wrong; neither does `reason`, which is for the log."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message


class SaslReply(NamedTuple):
    token: bytes
    username: str | None = None
    """The authenticated user, once the exchange is complete."""


class SaslExchange:
    """One attempt. `evaluate` is called with each token of the client."""

    async def evaluate(self, token: bytes) -> SaslReply:
        raise NotImplementedError


def load_scram() -> Any:
    """The library for SCRAM. A broker with SCRAM calls this at startup, because the import takes 20 ms and would
    otherwise block the event loop when the first client authenticates. Other brokers start without it."""
    import scramp  # type: ignore[import-untyped]  # it has no types

    return scramp


def begin_exchange(mechanism: str, find: FindCredential, compare: ComparePassword) -> SaslExchange:
    return PlainExchange(find, compare) if mechanism == PLAIN else ScramExchange(mechanism, find)


class PlainExchange(SaslExchange):
    def __init__(self, find: FindCredential, compare: ComparePassword) -> None:
        self._find = find
        self._compare = compare

    async def evaluate(self, token: bytes) -> SaslReply:
        username, password = _parse_plain(token)
        # The iterations take about ten milliseconds of CPU time.
        if not await self._compare(self._find(PLAIN, username), password):
            raise AuthenticationFailed(_PLAIN_FAILED, "invalid user or password")
        return SaslReply(b"", username)


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


class ScramExchange(SaslExchange):
    def __init__(self, mechanism: str, find: FindCredential, nonce: str | None = None) -> None:
        """The nonce is random, except in tests."""
        self._mechanism = mechanism
        self._find = find
        self._username: str | None = None
        self._server = load_scram().ScramMechanism(mechanism).make_server(self._credential, s_nonce=nonce)

    def _credential(self, username: str) -> tuple[bytes, bytes, bytes, int]:
        self._username = username
        found = self._find(self._mechanism, username)
        return found.salt, found.stored_key, found.server_key, found.iterations

    async def evaluate(self, token: bytes) -> SaslReply:
        try:
            if len(token) > MAX_SCRAM_BYTES or not token.isascii():
                raise ValueError("no user has such a name")
            if self._username is None:
                self._server.set_client_first(token.decode())
                return SaslReply(self._server.get_server_first().encode())
            self._server.set_client_final(token.decode())
            return SaslReply(self._server.get_server_final().encode(), self._username)
        except (load_scram().ScramException, UnicodeDecodeError, ValueError) as error:
            server_error = getattr(error, "server_error", None)
            reason = str(server_error.value) if server_error else ""
            raise AuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism,
                reason,
            ) from None
