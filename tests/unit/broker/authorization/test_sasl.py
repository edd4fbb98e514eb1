"""The server's half of SASL, beside the RFC's own example, our own client, and clients that cheat."""

import asyncio
import base64
import contextlib
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.authorization.decoy_credentials import PLAIN, DecoyCredentials
from holdfast.broker.authorization.password_verifier import FairPasswordVerifier
from holdfast.broker.authorization.sasl import (
    MAX_SCRAM_BYTES,
    AuthenticationFailed,
    ComparePassword,
    PlainExchange,
    SaslExchange,
    SaslReply,
    ScramExchange,
    begin_exchange,
)
from holdfast.broker.authorization.scram import Credential, _keys, make_credential
from holdfast.broker.authorization.users_file import MAX_NAME_LENGTH, UsersFileError, validate_name
from holdfast.broker.config.security import SCRAM_MECHANISMS
from holdfast.client.scram import scram

SECRET = b"0123456789abcdef0123456789abcdef"
PASSWORD = "correct, horse=battery"
CREDENTIALS = {mechanism: make_credential(mechanism, PASSWORD, 4096) for mechanism in SCRAM_MECHANISMS}
DECOYS = DecoyCredentials({"alice": CREDENTIALS}, SECRET)


def find(mechanism: str, username: str) -> Credential:
    if username != "alice":
        return DECOYS.credential(mechanism, username)
    return CREDENTIALS[SCRAM_MECHANISMS[-1] if mechanism == PLAIN else mechanism]


def compare() -> ComparePassword:
    return partial(FairPasswordVerifier().verify, "127.0.0.1")


def answer(exchange: SaslExchange, token: bytes) -> SaslReply:
    if isinstance(exchange, PlainExchange):
        return asyncio.run(exchange.evaluate(token))
    step = exchange.evaluate(token)
    try:
        step.send(None)
    except StopIteration as done:  # SCRAM's steps wait for nothing: no event loop is needed
        found: SaslReply = done.value
        return found
    raise AssertionError("it waits")


def refusal(exchange: SaslExchange, token: bytes) -> str:
    with pytest.raises(AuthenticationFailed) as refused:
        answer(exchange, token)
    assert PASSWORD not in str(refused.value) + refused.value.reason
    return str(refused.value)


# -- SCRAM -------------------------------------------------------------------------------------------------------------


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = Credential("SCRAM-SHA-256", 4096, salt, *_keys("SCRAM-SHA-256", "pencil", salt, 4096))
    exchange = ScramExchange("SCRAM-SHA-256", lambda *_: credential, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    first = answer(exchange, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        None,
    )
    final = answer(
        exchange,
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    )
    assert final == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


def converse(mechanism: str, username: str, password: str) -> str | None:
    """Our own client, which also makes the server prove that it knows the password."""
    exchange, client = ScramExchange(mechanism, find), scram(mechanism, username, password, "fyko+d2lbbFgONRv9qkxdawL")
    first = answer(exchange, next(client))
    final = answer(exchange, client.send(first.token))
    with pytest.raises(StopIteration):
        client.send(final.token)
    return final.username


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_the_right_password_is_proved_on_both_sides(mechanism: str) -> None:
    assert converse(mechanism, "alice", PASSWORD) == "alice"


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize(("username", "password"), [("alice", "wrong"), ("mallory", PASSWORD), ("mallory", "wrong")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(mechanism: str, username: str, password: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        converse(mechanism, username, password)
    assert str(refused.value) == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert refused.value.reason == "invalid-proof"


def to_the_final(change: tuple[bytes, bytes]) -> tuple[ScramExchange, bytes]:
    """An exchange before its last token, and that token, changed on its way."""
    exchange = ScramExchange("SCRAM-SHA-256", find)
    client = scram("SCRAM-SHA-256", "alice", PASSWORD, "fyko+d2lbbFgONRv9qkxdawL")
    final = client.send(answer(exchange, next(client)).token)
    assert change[0] in final
    return exchange, final.replace(*change)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param((b"c=biws", b"c=eSws"), id="another channel binding: y,,"),
        pytest.param((b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="), id="another channel binding: p=tls-unique,,"),
        pytest.param((b"r=fyko", b"r=gyko"), id="another nonce"),
        pytest.param((b",p=", b",x=y,p="), id="an extension that was not signed"),
        pytest.param((b",p=", b",p=AAAA"), id="a proof of another length"),
    ],
)
def test_a_final_message_that_was_changed_is_refused(change: tuple[bytes, bytes]) -> None:
    exchange, final = to_the_final(change)
    refusal(exchange, final)
    # The control: unchanged it is accepted.
    exchange, final = to_the_final((b"c=biws", b"c=biws"))
    assert answer(exchange, final).username == "alice"


def test_a_proof_that_was_overheard_is_of_no_use_in_another_exchange() -> None:
    _, overheard = to_the_final((b"", b""))
    exchange = ScramExchange("SCRAM-SHA-256", find)
    answer(exchange, b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL")
    refusal(exchange, overheard)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=admin,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=al=ce,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice\0,r=abc",
    ],
)
def test_a_first_message_that_is_not_scrams_is_refused(first: bytes) -> None:
    refusal(ScramExchange("SCRAM-SHA-512", find), first)


@pytest.mark.parametrize(
    "name", ["a" * MAX_SCRAM_BYTES, "a" + "\u0300" * 200 + "\u0316" * 200, "x" * 65_000], ids=["long", "marks", "huge"]
)
def test_an_impossible_user_name_is_refused_before_it_is_prepared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To prepare a name of combining marks takes the square of its length, and that on the event loop."""
    prepared: list[str] = []
    monkeypatch.setattr("scramp.core.saslprep", prepared.append)

    refusal(ScramExchange("SCRAM-SHA-512", find), f"n,,n={name},r=abc".encode())

    assert prepared == []


def test_the_longest_name_that_a_user_can_have_is_let_in() -> None:
    name = "=" * MAX_NAME_LENGTH
    escaped = name.replace("=", "=3D")

    first = answer(ScramExchange("SCRAM-SHA-512", find), f"n,,n={escaped},r={'n' * 64}".encode())

    assert first.token.startswith(b"r=")
    with pytest.raises(UsersFileError, match="at most"):
        validate_name(name + "=")


PIECES = st.sampled_from(
    [
        "n,,",
        "y,,",
        "p=tls-unique,,",
        "n=alice",
        "n=",
        "r=abc",
        "r=",
        ",",
        "=",
        "c=biws",
        "p=AAAA",
        "p=",
        "m=x",
        "é",
        "\0",
        "=",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=8).map(lambda parts: ",".join(parts).encode())))
def test_any_token_of_a_client_is_answered_or_refused(said: bytes) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        with contextlib.suppress(AuthenticationFailed):
            assert answer(begin_exchange(mechanism, find_nobody, compare()), said).username is None
    _, final = to_the_final((b"", b""))
    for broken in (said, final + b"," + said, final.split(b",p=")[0] + b"," + said):
        exchange = ScramExchange("SCRAM-SHA-256", find)
        answer(exchange, b"n,,n=alice,r=abc")
        with pytest.raises(AuthenticationFailed):
            answer(exchange, broken)


def find_nobody(mechanism: str, username: str) -> Credential:
    return DECOYS.credential(mechanism, username)


# -- PLAIN -------------------------------------------------------------------------------------------------------------


def test_plain_compares_with_what_is_stored_for_scram() -> None:
    for authorization in ("", "alice"):
        token = f"{authorization}\0alice\0{PASSWORD}".encode()
        exchange = begin_exchange("PLAIN", find, compare())
        assert isinstance(exchange, PlainExchange)
        assert answer(exchange, token) == (b"", "alice")


@pytest.mark.parametrize("token", [b"\0alice\0wrong", f"\0mallory\0{PASSWORD}".encode()])
def test_plain_refuses_a_wrong_password_and_an_unknown_user_alike(token: bytes) -> None:
    assert refusal(PlainExchange(find, compare()), token) == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"", "expected 3 tokens"),
        (b"\xff\0\xff\0\xff", "expected 3 tokens"),
        (b"\0a\0b\0c", "expected 3 tokens"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (f"admin\0alice\0{PASSWORD}".encode(), "authorization id that is different from username"),
    ],
)
def test_plain_refuses_what_is_not_three_words_of_one_user(token: bytes, said: str) -> None:
    assert said in refusal(PlainExchange(find, compare()), token)


def test_nothing_that_is_stored_shows_in_a_repr() -> None:
    credential = CREDENTIALS["SCRAM-SHA-256"]
    assert repr(credential.stored_key) not in repr(credential)
    assert repr(credential.server_key) not in repr(credential)
