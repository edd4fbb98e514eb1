"""SCRAM (RFC 5802, RFC 7677): the client proves that it knows the password, and the server proves that it has the
credential.

The exchange is a generator: it yields messages to send, is sent the server's messages, and raises
`AuthenticationFailed` if the server cannot be trusted. As in Kafka and librdkafka, names and passwords are not
normalized by SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator
from typing import Final

from holdfast.client.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4096
"""From RFC 7677. With fewer iterations, the password would be easier to guess from the proof."""
MAX_ITERATIONS: Final = 1_000_000
"""About a second of CPU time, so that a hostile server cannot keep the client busy for longer. Kafka's own limit is
16,384."""

_NO_BINDING: Final = "n,,"


def scram(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """One exchange. The nonce must be printable, without a comma, and never used before."""
    first_bare = f"n={_escaped(username)},r={nonce}"
    server_first = _text((yield (_NO_BINDING + first_bare).encode()))
    full_nonce, salt, iterations = _parse_first(server_first, nonce)

    binding = base64.b64encode(_NO_BINDING.encode()).decode()
    final_bare = f"c={binding},r={full_nonce}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signature = hmac.digest(stored_key, signed, name)
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))

    server_final = _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))
    server_key = hmac.digest(salted, b"Server Key", name)
    _check_final(server_final, hmac.digest(server_key, signed, name))


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _parse_first(server_first: str, nonce: str) -> tuple[str, bytes, int]:
    """(combined nonce, salt, iterations). The attributes have this order; extensions may follow."""
    fields = server_first.split(",")
    if fields[0].startswith("m="):
        raise _untrusted("it demands a SCRAM extension that is not known here")
    if [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
        raise _untrusted("its first message is not SCRAM's")
    full_nonce, salt_text, iterations_text = (field[2:] for field in fields[:3])
    if not full_nonce.startswith(nonce) or len(full_nonce) == len(nonce):
        raise _untrusted("its nonce does not continue ours: the message belongs to another exchange")
    try:
        salt = base64.b64decode(salt_text, validate=True)
        # A number with more digits than the limit is not converted.
        iterations = int(iterations_text) if iterations_text.isdecimal() and len(iterations_text) < 10 else 0
    except (binascii.Error, ValueError):
        raise _untrusted("its salt is not base64") from None
    if not salt or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise _untrusted(
            f"it asks for {iterations_text[:20]!r} iterations and a salt of {len(salt)} bytes; "
            f"accepted are {MIN_ITERATIONS} to {MAX_ITERATIONS} and a salt that is not empty"
        )
    return full_nonce, salt, iterations


def _check_final(server_final: str, expected: bytes) -> None:
    if server_final.startswith("e="):
        raise AuthenticationFailed(f"the broker refuses user or password: {server_final[2:].split(',')[0][:100]}")
    try:
        verifier = base64.b64decode(server_final.removeprefix("v=").split(",")[0], validate=True)
    except (binascii.Error, ValueError):
        verifier = b""
    if not server_final.startswith("v=") or not hmac.compare_digest(verifier, expected):
        raise _untrusted("it cannot prove that it knows the password: somebody else may be answering in its place")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _untrusted("its message is not text") from None


def _untrusted(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"the broker is not trusted in SCRAM: {why}")
