"""The names in SASL tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from holdfast.client.sasl import Sasl
from holdfast.gateway.router.sasl_names import MECHANISMS, NameReader, UnknownName, name_reader


def reader(mechanism: str) -> NameReader:
    found = name_reader(mechanism)
    assert found is not None
    return found


def jwt(claims: Any) -> str:
    parts = [json.dumps({"alg": "none"}).encode(), json.dumps(claims).encode(), b"signature"]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def oauth(token: str, extra: bytes = b"") -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01" + extra + b"\x01"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain", "SCRAM-SHA-1"])
def test_other_mechanisms_are_not_known(mechanism: str) -> None:
    assert name_reader(mechanism) is None


@pytest.mark.parametrize("name", ["alice", "ä=,ß", "a b"])
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_the_tokens_of_our_own_client_tell_the_name(mechanism: str, name: str) -> None:
    if mechanism != "PLAIN" and not name.isascii():
        name = "a=,s"
    names = reader(mechanism)
    names.client_sent(next(Sasl(mechanism, name, "secret").begin()))
    if mechanism == "PLAIN":
        assert names.kafka_answered(b"") == name
    else:
        assert names.kafka_answered(b"r=nonce,s=salt,i=4096") is None
        names.client_sent(b"c=biws,r=nonce,p=proof")
        assert names.kafka_answered(b"v=signature") == name


def test_a_jwt_tells_the_name_when_kafka_answers_with_nothing() -> None:
    names = reader("OAUTHBEARER")
    names.client_sent(oauth(jwt({"sub": "alice", "exp": 1}), b"ext=1\x01"))
    assert names.kafka_answered(b'{"status":"invalid_token"}') is None
    names.client_sent(b"\x01")
    assert names.kafka_answered(b"") == "alice"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice\0secret",
        b"\0alice\0secret\0more",
        b"\0\0secret",
        b"bob\0alice\0secret",
        b"\0\xff\xfe\0secret",
    ],
)
def test_plain_tokens_that_kafka_might_read_otherwise_are_refused(token: bytes) -> None:
    with pytest.raises(UnknownName):
        reader("PLAIN").client_sent(token)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,",
        b"n,,",
        b"n,,r=nonce",
        b"y,,n=alice,r=nonce",
        b"n,,m=ext,n=alice,r=nonce",
        b"n,,n=,r=nonce",
        b"n,,n=a=b,r=nonce",
        b"n,a=bob,n=alice,r=nonce",
        b"n,,n=id,r=nonce,tokenauth=true",
        b"n,,n=id,r=nonce,tokenauth=TRUE",
        b"n,,n=\xff,r=nonce",
    ],
)
def test_scram_messages_that_kafka_might_read_otherwise_are_refused(token: bytes) -> None:
    with pytest.raises(UnknownName):
        reader("SCRAM-SHA-256").client_sent(token)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        oauth("opaque"),
        oauth("a.b.c"),
        oauth(jwt({"user": "alice"})),
        oauth(jwt({"sub": 7})),
        oauth(jwt({"sub": ""})),
        oauth(jwt(["sub"])),
        oauth(jwt({"sub": "alice"}), b"auth=Bearer " + jwt({"sub": "bob"}).encode() + b"\x01"),
        oauth("a." + base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".c"),
    ],
)
def test_bearer_tokens_without_a_subject_are_refused(token: bytes) -> None:
    with pytest.raises(UnknownName):
        reader("OAUTHBEARER").client_sent(token)


def test_a_refusal_does_not_repeat_the_token() -> None:
    with pytest.raises(UnknownName) as refused:
        reader("PLAIN").client_sent(b"secret")
    assert "secret" not in str(refused.value)
