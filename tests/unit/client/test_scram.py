"""SCRAM beside the RFC's own example, a server of our own, and servers that cheat."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import AuthenticationFailed
from holdfast.client.scram import MAX_ITERATIONS, MECHANISMS, scram

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
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
    first_reply = f"r={nonce}SERVER,s={base64.b64encode(SALT).decode()},i={iterations}"
    final = exchange.send(first_reply.encode()).decode()
    without_proof, proof = final.split(",p=")
    assert without_proof == f"c=biws,r={nonce}SERVER"

    salted = hashlib.pbkdf2_hmac(name, server_password.encode(), SALT, iterations)
    signed = f"{bare},{first_reply},{without_proof}".encode()
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


def server_first(nonce: str = f"{NONCE}x", salt: bytes | str = SALT, iterations: str = "4096") -> bytes:
    encoded = base64.b64encode(salt).decode() if isinstance(salt, bytes) else salt
    return f"r={nonce},s={encoded},i={iterations}".encode()


def test_only_known_mechanisms_are_offered() -> None:
    assert tuple(HASHES) == MECHANISMS


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (server_first(salt=b""), "at least one character"),
        (server_first(salt=SALT[:11]), "'salt' is 11 bytes long"),
        (server_first(iterations="4095"), "must not be < 4096"),
        (server_first(iterations="1"), "must not be < 4096"),
        (server_first(iterations=f"{MAX_ITERATIONS + 1}"), "it asks for 1000001 iterations"),
        (server_first(iterations=f"{2**31}"), "must not be > "),
        (server_first(iterations="9" * 10_000), "iteration count is not valid"),
        (server_first(iterations="-5000"), "iteration count can only contain"),
        (server_first(iterations="lots"), "iteration count can only contain"),
        (server_first(salt="*"), "Invalid base 64"),
        (server_first(nonce=NONCE), "nonce must be longer"),
        (server_first(nonce="another"), "nonce doesn't match"),
        (b"m=ext," + server_first(), "'m' attribute isn't supported"),
        (b"s=MDEyMzQ1Njc4OWFi,i=4096", "Malformed server first"),
        (b"e=other-error", "The server returned an error"),
        (b"", "Malformed server first"),
    ],
    ids=lambda value: value[:60].decode() if isinstance(value, bytes) else None,
)
def test_a_server_that_cheats_in_its_first_message_gets_no_proof(first: bytes, why: str) -> None:
    exchange = scram("SCRAM-SHA-256", "alice", "secret", NONCE)
    next(exchange)
    with pytest.raises(AuthenticationFailed, match=f"not trusted in SCRAM: its first message .*{why}.*4096 to 1000000"):
        exchange.send(first)


def test_the_most_iterations_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the limit, without the second that they take."""
    asked: list[int] = []

    def derived(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        asked.append(iterations)
        return bytes(hashlib.new(name).digest_size)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", derived)
    exchange = scram("SCRAM-SHA-256", "alice", "secret", NONCE)
    next(exchange)

    assert b",p=" in exchange.send(server_first(iterations=f"{MAX_ITERATIONS}"))
    assert asked == [MAX_ITERATIONS]


def test_a_message_that_is_not_text_gets_no_proof() -> None:
    exchange = scram("SCRAM-SHA-256", "alice", "secret", NONCE)
    next(exchange)
    with pytest.raises(AuthenticationFailed, match="not trusted in SCRAM: its message is not text"):
        exchange.send(b"\xff\xfe")


@pytest.mark.parametrize("password", ["I\u00adX", "\u2168", "pass\tword", "\u00a0", "\u0627\u0031"])
def test_a_password_that_saslprep_changes_or_rejects_is_sent_as_in_kafka(password: str) -> None:
    assert converse("SCRAM-SHA-512", "=,\u2168", password, password) == "=,\u2168"


@pytest.mark.parametrize("final", [b"v=AAAA", b"v=", b"v=*", b"", b"ok", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_not_trusted(final: bytes) -> None:
    exchange = scram("SCRAM-SHA-512", "alice", "secret", NONCE)
    next(exchange)
    exchange.send(server_first())
    with pytest.raises(AuthenticationFailed, match="not trusted in SCRAM"):
        exchange.send(final)
