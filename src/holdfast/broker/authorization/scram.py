"""Stored SCRAM credentials, and the verification of passwords against them (RFC 5802, RFC 7677).

The broker stores only the keys that a SCRAM server needs. They are not sufficient to log in, and each guess of the
password costs all iterations. As in Kafka, names and passwords are not normalized by SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4096
"""From RFC 7677; also the minimum that Kafka's clients accept."""
MAX_ITERATIONS: Final = 1_000_000
"""The maximum that Holdfast's client accepts: about a second of CPU time."""
DEFAULT_ITERATIONS: Final = 16_384
"""The maximum that Kafka's own tools set: about ten milliseconds of a client's CPU time for each connection."""
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    """The stored keys of one password for one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def matches(self, password: str) -> bool:
        """Whether this was made from `password`. Do not call this on the event loop: it computes all iterations."""
        return hmac.compare_digest(_keys(self.mechanism, password, self.salt, self.iterations)[0], self.stored_key)


def make_credential(mechanism: str, password: str, iterations: int = DEFAULT_ITERATIONS) -> Credential:
    salt = secrets.token_bytes(SALT_BYTES)
    return Credential(mechanism, iterations, salt, *_keys(mechanism, password, salt, iterations))


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """From AlterUserScramCredentials, in which the client has salted and iterated the password (KIP-554)."""
    return Credential(mechanism, iterations, salt, *_keys_of(mechanism, salted_password))


def _keys(mechanism: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    return _keys_of(mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations))


def _keys_of(mechanism: str, salted: bytes) -> tuple[bytes, bytes]:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)
