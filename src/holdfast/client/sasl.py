"""The client's part of the SASL mechanisms.

Each exchange is a generator, as in `scram`: it yields tokens to send, is sent the broker's tokens, and returns when the
exchange is complete.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client import scram
from holdfast.client.errors import AuthenticationFailed, ConfigError

MECHANISMS: Final = ("PLAIN", *scram.MECHANISMS, "OAUTHBEARER")
OauthCallback = Callable[[str], Any]
"""As in confluent-kafka: takes `sasl.oauthbearer.config` and returns (token, expiry in seconds since the epoch),
optionally with a principal and a mapping of SASL extensions."""

_SEPARATOR: Final = "\x01"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, b64token
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Sasl:
    """The mechanism and the credentials of the client."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    oauth_cb: OauthCallback | None = field(default=None, repr=False)
    oauth_config: str = field(default="", repr=False)

    def begin(self) -> Generator[bytes, bytes, None]:
        """A new exchange, with a new token for OAUTHBEARER."""
        if self.mechanism == "PLAIN":
            return _plain(self.username, self.password)
        if self.mechanism in scram.MECHANISMS:
            return scram.scram(self.mechanism, self.username, self.password, secrets.token_urlsafe(24))
        return _oauthbearer(*self._token())

    def _token(self) -> tuple[str, Mapping[str, str]]:
        if self.oauth_cb is None:
            raise ConfigError("sasl.mechanism OAUTHBEARER needs oauth_cb, a function that returns (token, expiry)")
        try:
            given = self.oauth_cb(self.oauth_config)
        except Exception as failure:
            # Retriable, because the token service may recover. Its message may contain secrets, so only the type is
            # reported.
            raise AuthenticationFailed(
                f"oauth_cb raised {type(failure).__name__}", retriable=True, fatal=False
            ) from failure
        if not isinstance(given, tuple) or len(given) not in (2, 3, 4) or not isinstance(given[0], str):
            raise AuthenticationFailed("oauth_cb must return (token, expiry[, principal[, extensions]])")
        extensions = given[3] if len(given) == 4 else {}
        return given[0], extensions or {}


def _plain(username: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{username}\0{password}".encode()


def _oauthbearer(token: str, extensions: Mapping[str, str]) -> Generator[bytes, bytes, None]:
    """RFC 7628. The broker rejects a token with JSON. The client acknowledges it with one separator, and the exchange
    fails."""
    if not _TOKEN.fullmatch(token):
        raise AuthenticationFailed("oauth_cb returned a token with characters that a bearer token cannot have")
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise AuthenticationFailed(f"oauth_cb returned a SASL extension {name!r} that RFC 7628 does not allow")
    pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    message = "n,," + _SEPARATOR + "".join(pair + _SEPARATOR for pair in pairs) + _SEPARATOR
    refusal = yield message.encode()
    if refusal:
        yield _SEPARATOR.encode()
        raise AuthenticationFailed(f"the broker refuses the token: {_status(refusal)}")


def _status(refusal: bytes) -> str:
    try:
        said = json.loads(refusal)
        return str(said["status"])[:100]
    except (ValueError, KeyError, TypeError):
        return "without a reason"
