"""SCRAM beside the RFC's own example, a server of our own, and servers that cheat."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import AuthenticationFailed
from holdfast.client.scram import HASHES, MAX_ITERATIONS, scram

SALT = b"0123456789abcdef"
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def converse(mechanism: str, username: str, password: str, server_password: str, iterations: int = 4096) -> str:
    """Runs the exchange with a server that was written from the RFC's formulas; returns the user it saw."""
    name = HASHES[mechanism]
    exchange = scram(mechanism, username, password, NONCE)
    first = next(exchange).decode()
    assert first.startswith("n,,n=")
    bare = first.removeprefix("n,,")
    user, nonce = bare.split(",r=")
    server_first = f"r={nonce}SERVER,s={base64.b64encode(SALT).decode()},i={iterations}"
    final = exchange.send(server_first.encode()).decode()
    without_proof, proof = final.split(",p=")
    assert without_proof == f"c=biws,r={nonce}SERVER"

    salted = hashlib.pbkdf2_hmac(name, server_password.encode(), SALT, iterations)
    signed = f"{bare},{server_first},{without_proof}".encode()
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    signature = hmac.digest(stored, signed, name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    if hashlib.new(name, key).digest() != stored:
        exchange.send(b"e=invalid-proof")
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + base64.b64encode(verifier))
    return user.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")


def test_the_example_of_rfc_7677() -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = exchange.send(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@settings(max_examples=15)
@given(
    mechanism=st.sampled_from(list(HASHES)),
    username=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_any_name_and_password_are_proved_to_a_server_that_knows_them(
    mechanism: str, username: str, password: str
) -> None:
    assert converse(mechanism, username, password, password) == username


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_wrong_password_is_refused_by_the_server(mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed, match="refuses user or password: invalid-proof") as raised:
        converse(mechanism, "alice", "wrong-secret", "right-secret")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"r=" + NONCE.encode() + b"x,s=,i=4096", "a salt of 0 bytes"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=4095", "4095"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=1", "'1' iterations"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=%d" % (MAX_ITERATIONS + 1), "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=99999999999999999999", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=-5000", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=MDEy,i=lots", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=*,i=4096", "salt is not base64"),
        (b"r=" + NONCE.encode() + b",s=MDEy,i=4096", "nonce does not continue ours"),
        (b"r=another,s=MDEy,i=4096", "nonce does not continue ours"),
        (b"m=ext,r=" + NONCE.encode() + b"x,s=MDEy,i=4096", "demands a SCRAM extension"),
        (b"s=MDEy,i=4096", "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_a_server_that_cheats_in_its_first_message_gets_no_proof(first: bytes, why: str) -> None:
    exchange = scram("SCRAM-SHA-256", "alice", "secret", NONCE)
    next(exchange)
    with pytest.raises(AuthenticationFailed, match=f"not trusted in SCRAM.*{why}"):
        exchange.send(first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"v=", b"v=*", b"", b"ok", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_not_trusted(final: bytes) -> None:
    exchange = scram("SCRAM-SHA-512", "alice", "secret", NONCE)
    next(exchange)
    exchange.send(b"r=" + NONCE.encode() + b"x,s=MDEy,i=4096")
    with pytest.raises(AuthenticationFailed, match="not trusted in SCRAM"):
        exchange.send(final)
