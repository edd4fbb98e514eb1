"""Credentials for users that do not exist, so that SCRAM does not tell which users do.

SCRAM answers the first message of a client with the user's salt and iteration count, before any proof. For an absent
user both are derived from the name and a secret, so that they are the same each time. They also have the form that
existing users' credentials have: iteration counts and salts differ between `holdfast users add` and the Kafka tools,
and a form that no existing user has would show that the user is absent. Each absent name therefore copies the form
of one existing user, chosen by consistent hashing: a user that is added or removed changes the form of few names.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from bisect import bisect
from collections.abc import Mapping
from typing import Final

from holdfast.broker.security.scram import DEFAULT_ITERATIONS, HASHES, SALT_BYTES, SCRAM_MECHANISMS, Credential

PLAIN: Final = "PLAIN"
_POINTS_PER_USER: Final = 4
"""Places of a user on the ring; with more, the forms of absent users follow those of the existing ones more closely."""
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""What the salts of Kafka's Java tools consist of."""


def strongest(of_user: Mapping[str, Credential]) -> Credential | None:
    """The credential that a password sent by PLAIN is compared with."""
    return next((of_user[mechanism] for mechanism in reversed(SCRAM_MECHANISMS) if mechanism in of_user), None)


class Decoys:
    def __init__(self, credentials: Mapping[str, Mapping[str, Credential]], secret: bytes) -> None:
        self._secret = secret
        self._rings: dict[str, tuple[list[bytes], list[Credential]]] = {}
        for mechanism in (*SCRAM_MECHANISMS, PLAIN):
            models = {
                name: found
                for name, of_user in credentials.items()
                if (found := strongest(of_user) if mechanism == PLAIN else of_user.get(mechanism)) is not None
            }
            points = sorted(
                (self._place(f"model\0{number}\0{name}"), name) for name in models for number in range(_POINTS_PER_USER)
            )
            self._rings[mechanism] = [point for point, _ in points], [models[name] for _, name in points]

    def credential(self, mechanism: str, username: str) -> Credential:
        places, models = self._rings[mechanism]
        at = bisect(places, self._place(f"absent\0{mechanism}\0{username}"))
        if not models:
            return decoy_credential(_usual(mechanism), username, self._secret)
        return decoy_credential(models[at % len(models)], username, self._secret)

    def _place(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha256")


def decoy_credential(model: Credential, username: str, secret: bytes) -> Credential:
    """Of no password. Its salt stays the same; its keys do not matter, because no proof fits them."""
    salt = _salt_like(model.salt, b"salt\0" + secret + f"{model.mechanism}\0{username}".encode())
    no_key = secrets.token_bytes(hashlib.new(HASHES[model.mechanism]).digest_size)
    return Credential(model.mechanism, model.iterations, salt, no_key, no_key)


def _salt_like(model: bytes, seed: bytes) -> bytes:
    drawn = hashlib.shake_256(seed).digest(len(model))
    return bytes(_BASE_36[one % 36] for one in drawn) if all(one in _BASE_36 for one in model) else drawn


def _usual(mechanism: str) -> Credential:
    return Credential(
        SCRAM_MECHANISMS[-1] if mechanism == PLAIN else mechanism, DEFAULT_ITERATIONS, b"\xff" * SALT_BYTES, b"", b""
    )
