"""What is stored of a password, and how one is compared with it (RFC 5802, RFC 7677).

Of a password only what SCRAM's server needs is kept: from it nobody can log in, and the password itself can only be
guessed, at the price of the iterations for each guess. As in Kafka, names and passwords are used as they are, not
prepared by SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS: Final = 4096
"""RFC 7677, and the fewest that Kafka's clients accept."""
MOST_ITERATIONS: Final = 1_000_000
"""The most that our own client accepts: about a second of its time."""
DEFAULT_ITERATIONS: Final = 16_384
"""The most that Kafka's own tools set: some ten milliseconds of a client with each connection."""
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    """What SCRAM's server knows of one password under one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def is_of(self, password: str) -> bool:
        """Whether this was made from `password`. Takes as long as the iterations do: not for the event loop."""
        return hmac.compare_digest(_keys(self.mechanism, password, self.salt, self.iterations)[0], self.stored_key)


def make_credential(mechanism: str, password: str, iterations: int = DEFAULT_ITERATIONS) -> Credential:
    salt = secrets.token_bytes(SALT_BYTES)
    return Credential(mechanism, iterations, salt, *_keys(mechanism, password, salt, iterations))


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
    """From what AlterUserScramCredentials carries: the client has salted and iterated the password itself (KIP-554)."""
    return Credential(mechanism, iterations, salt, *_keys_of(mechanism, salted_password))


def _keys(mechanism: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    return _keys_of(mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations))


def _keys_of(mechanism: str, salted: bytes) -> tuple[bytes, bytes]:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)
