"""Credentials for users that do not exist, so that SCRAM does not reveal which users do.

SCRAM answers the first message of a client with the user's salt and iteration count, before any proof. For an absent
user, both are derived from the name and a secret, so that they are the same each time. They also need a plausible form:
iteration counts and salts differ between `holdfast users add` and the Kafka tools, and a form that no existing user has
would show that the user is absent. Each absent name therefore copies the form of one existing user. Consistent hashing
selects that user, so adding or removing a user changes the form of few names.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from bisect import bisect
from collections.abc import Mapping
from typing import Final

from holdfast.broker.authorization.scram import DEFAULT_ITERATIONS, HASHES, SALT_BYTES, Credential
from holdfast.broker.config.security import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
_POINTS_PER_USER: Final = 4
"""Points of a user on the ring; with more, the forms of absent users are distributed more like the existing ones."""
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""The alphabet of the salts of Kafka's Java tools."""


def strongest_credential(of_user: Mapping[str, Credential]) -> Credential | None:
    """The credential that a password sent by PLAIN is compared with."""
    return next((of_user[mechanism] for mechanism in reversed(SCRAM_MECHANISMS) if mechanism in of_user), None)


class DecoyCredentials:
    def __init__(self, credentials: Mapping[str, Mapping[str, Credential]], secret: bytes) -> None:
        self._secret = secret
        self._rings: dict[str, tuple[list[bytes], list[Credential]]] = {}
        for mechanism in (*SCRAM_MECHANISMS, PLAIN):
            models = {
                name: found
                for name, of_user in credentials.items()
                if (found := strongest_credential(of_user) if mechanism == PLAIN else of_user.get(mechanism))
                is not None
            }
            points = sorted(
                (self._ring_position(f"model\0{number}\0{name}"), name)
                for name in models
                for number in range(_POINTS_PER_USER)
            )
            self._rings[mechanism] = [point for point, _ in points], [models[name] for _, name in points]

    def credential(self, mechanism: str, username: str) -> Credential:
        places, models = self._rings[mechanism]
        at = bisect(places, self._ring_position(f"absent\0{mechanism}\0{username}"))
        if not models:
            return decoy_credential(_default_model(mechanism), username, self._secret)
        return decoy_credential(models[at % len(models)], username, self._secret)

    def _ring_position(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha256")


def decoy_credential(model: Credential, username: str, secret: bytes) -> Credential:
    """A credential that no password matches. Its salt is stable; its keys do not matter."""
    salt = _salt_like(model.salt, b"salt\0" + secret + f"{model.mechanism}\0{username}".encode())
    no_key = secrets.token_bytes(hashlib.new(HASHES[model.mechanism]).digest_size)
    return Credential(model.mechanism, model.iterations, salt, no_key, no_key)


def _salt_like(model: bytes, seed: bytes) -> bytes:
    drawn = hashlib.shake_256(seed).digest(len(model))
    return bytes(_BASE_36[one % 36] for one in drawn) if all(one in _BASE_36 for one in model) else drawn


def _default_model(mechanism: str) -> Credential:
    return Credential(
        SCRAM_MECHANISMS[-1] if mechanism == PLAIN else mechanism, DEFAULT_ITERATIONS, b"\xff" * SALT_BYTES, b"", b""
    )
