"""The names of users in SASL tokens, and how Kafka's tokens tell that an authentication is complete.

The gateway does not verify anything. It believes a name when Kafka accepts the authentication in which it was given.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final, Protocol

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms whose tokens tell the name."""

_ESCAPED: Final = re.compile("=2C|=3D")
_BEARER: Final = re.compile("bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


class UnknownName(Exception):
    """The token does not tell the name. The text is for the client and the log, and contains nothing of the token."""


class NameReader(Protocol):
    """One authentication."""

    def client_sent(self, token: bytes) -> None:
        """Raises UnknownName."""

    def kafka_answered(self, token: bytes) -> str | None:
        """The name, if Kafka's answer completes the authentication. Kafka has reported no error."""


def name_reader(mechanism: str) -> NameReader | None:
    """None for a mechanism whose tokens do not tell the name."""
    if mechanism == "PLAIN":
        return _Plain()
    if mechanism == "OAUTHBEARER":
        return _OauthBearer()
    return _Scram() if mechanism in MECHANISMS else None


class _Plain:
    """RFC 4616: authorization id, name and password, separated by NUL."""

    def __init__(self) -> None:
        self._name: str | None = None

    def client_sent(self, token: bytes) -> None:
        try:
            authorization, name, _ = token.decode().split("\0")
        except ValueError:
            raise UnknownName("Invalid SASL/PLAIN response: expected 3 tokens") from None
        if not name or authorization not in ("", name):
            raise UnknownName("Authentication failed: the gateway needs a username, and no other authorization id")
        self._name = name

    def kafka_answered(self, token: bytes) -> str | None:
        return None if token else self._name


class _Scram:
    """RFC 5802: the client's first message has the name, and Kafka's last one begins with `v=`."""

    def __init__(self) -> None:
        self._name: str | None = None

    def client_sent(self, token: bytes) -> None:
        if self._name is not None:
            return  # the proof
        try:
            binding, authorization, *bare = token.decode().split(",")
        except ValueError:
            raise UnknownName("Invalid SCRAM client first message") from None
        name = next((part[2:] for part in bare[:1] if part.startswith("n=")), "")
        if binding != "n" or not name or "=" in _ESCAPED.sub("", name):
            raise UnknownName("Invalid SCRAM client first message")
        if any(part.lower() == "tokenauth=true" for part in bare):
            # The name is that of the delegation token, and only Kafka knows whose token it is.
            raise UnknownName("The gateway does not support delegation tokens: authenticate with a user and password")
        name = _ESCAPED.sub(lambda found: "," if found[0] == "=2C" else "=", name)
        if authorization not in ("", f"a={name}"):
            raise UnknownName("Authentication failed: the authorization id differs from the username")
        self._name = name

    def kafka_answered(self, token: bytes) -> str | None:
        return self._name if token.startswith(b"v=") else None


class _OauthBearer:
    """RFC 7628. The name is the `sub` of the token, which must be a JWT. Kafka answers a token that it does not accept
    with JSON rather than with an error, and an accepted one with nothing."""

    def __init__(self) -> None:
        self._name: str | None = None

    def client_sent(self, token: bytes) -> None:
        if self._name is not None:
            return  # the acknowledgement of a refusal
        found = [pair[5:] for pair in token.split(b"\x01")[1:] if pair.startswith(b"auth=")]
        bearer = _BEARER.fullmatch(found[0].decode("latin-1")) if len(found) == 1 else None
        if bearer is None:
            raise UnknownName("Invalid OAUTHBEARER client first message")
        self._name = _subject(bearer[1])

    def kafka_answered(self, token: bytes) -> str | None:
        return None if token else self._name


def _subject(token: str) -> str:
    try:
        _, payload, *_ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        subject = claims["sub"]
    except (ValueError, binascii.Error, KeyError, TypeError, RecursionError):
        subject = None
    if not isinstance(subject, str) or not subject:
        raise UnknownName("The gateway supports OAUTHBEARER only with tokens that are a JWT with the claim sub")
    return subject
