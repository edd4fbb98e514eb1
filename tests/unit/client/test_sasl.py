"""SASL on a connection: mechanisms, refusals, sessions that end."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.client.connection import Connection
from holdfast.client.errors import AuthenticationFailed, UnsupportedVersion
from holdfast.client.runtime import SYSTEM
from holdfast.client.security import Security
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import Peer, Request, Script, ScriptedServer

PATIENCE_S = 20.0
SECRET = "correct horse"


def security(mechanism: str = "PLAIN", **more: Any) -> Security:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism != "OAUTHBEARER":
        config |= {"sasl.username": "alice", "sasl.password": SECRET}
    return Security.from_config(config | more)


def connect(server: ScriptedServer, guarded: Security) -> Connection:
    connection = Connection(*server.address, security=guarded, runtime=SYSTEM)
    connection.connect(time.monotonic() + PATIENCE_S)
    return connection


class ScriptedAuthentication:
    """A broker that records what it gets and answers tokens with what the test gives."""

    def __init__(self, *answers: SaslAuthenticateResponse, lifetimes_ms: tuple[int, ...] = ()) -> None:
        self.answers = list(answers)
        self.lifetimes_ms = list(lifetimes_ms)
        self.seen: list[Request] = []

    def __call__(self, peer: Peer) -> None:
        peer.answer_api_versions()
        while True:
            request = peer.request()
            self.seen.append(request)
            peer.answer(request, self.answer(request))

    def answer(self, request: Request) -> Any:
        if request.api is SASL_HANDSHAKE:
            return SaslHandshakeResponse(mechanisms=[request.message.mechanism])
        if request.api is SASL_AUTHENTICATE:
            if self.answers:
                return self.answers.pop(0)
            return SaslAuthenticateResponse(session_lifetime_ms=self.lifetimes_ms.pop(0) if self.lifetimes_ms else 0)
        return HeartbeatResponse()

    @property
    def tokens(self) -> list[bytes]:
        return [request.message.auth_bytes for request in self.seen if request.api is SASL_AUTHENTICATE]

    @property
    def apis(self) -> list[str]:
        return [request.api.name for request in self.seen]


def refusing(code: ErrorCode, *mechanisms: str) -> Script:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.answer(peer.request(), SaslHandshakeResponse(code, list(mechanisms)))
        peer.expect_end()

    return script


# -- mechanisms --------------------------------------------------------------------------------------------------------


def test_plain_says_user_and_password_once_the_mechanism_is_agreed() -> None:
    guard = ScriptedAuthentication()
    with ScriptedServer(guard) as server, connect(server, security()) as connection:
        assert connection.ask(HeartbeatRequest("g")).error_code == 0
    assert guard.apis == ["SaslHandshake", "SaslAuthenticate", "Heartbeat"]
    handshake, authenticate, _ = guard.seen
    assert (handshake.version, handshake.message.mechanism) == (1, "PLAIN")
    assert (authenticate.version, authenticate.message.auth_bytes) == (2, b"\0alice\0correct horse")


def test_oauthbearer_says_the_token_of_the_callback_and_its_extensions() -> None:
    asked = []

    def callback(config: str) -> tuple[str, float, str, Mapping[str, str]]:
        asked.append(config)
        return "abc.def", time.time() + 60, "alice", {"traceId": "7"}

    guard = ScriptedAuthentication()
    guarded = security("OAUTHBEARER", oauth_cb=callback, **{"sasl.oauthbearer.config": "scope=x"})
    with ScriptedServer(guard) as server, connect(server, guarded):
        pass
    assert asked == ["scope=x"]
    assert guard.tokens == [b"n,,\x01auth=Bearer abc.def\x01traceId=7\x01\x01"]


def test_a_refused_token_is_acknowledged_and_the_brokers_reason_is_raised() -> None:
    failure = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "token expired")
    guard = ScriptedAuthentication(
        SaslAuthenticateResponse(auth_bytes=json.dumps({"status": "invalid_token"}).encode()), failure
    )
    guarded = security("OAUTHBEARER", oauth_cb=lambda _: ("abc", 0.0))
    with ScriptedServer(guard) as server, pytest.raises(AuthenticationFailed, match="token expired"):
        connect(server, guarded)
    assert guard.tokens == [b"n,,\x01auth=Bearer abc\x01\x01", b"\x01"]


def test_a_refused_token_is_refused_even_if_the_broker_then_forgets_to_say_so() -> None:
    guard = ScriptedAuthentication(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    guarded = security("OAUTHBEARER", oauth_cb=lambda _: ("abc", 0.0))
    with ScriptedServer(guard) as server, pytest.raises(AuthenticationFailed, match="refuses the token: invalid_token"):
        connect(server, guarded)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("token", "oauth_cb must return"),
        (("a\x01b", 0.0), "characters that a bearer token cannot have"),
        (("", 0.0), "characters that a bearer token cannot have"),
        (("abc", 0.0, "p", {"auth": "x"}), "SASL extension 'auth'"),
        (("abc", 0.0, "p", {"a": "x\x01y"}), "SASL extension 'a'"),
    ],
)
def test_a_callback_that_returns_nonsense_raises_a_clear_error(given: Any, said: str) -> None:
    guarded = security("OAUTHBEARER", oauth_cb=lambda _: given)
    with ScriptedServer(ScriptedAuthentication()) as server, pytest.raises(AuthenticationFailed, match=said):
        connect(server, guarded)


def test_a_callback_that_raises_may_be_tried_again_and_its_words_are_not_repeated() -> None:
    def callback(_: str) -> tuple[str, float]:
        raise OSError("https://user:hunter2@idp is down")

    guarded = security("OAUTHBEARER", oauth_cb=callback)
    with (
        ScriptedServer(ScriptedAuthentication()) as server,
        pytest.raises(AuthenticationFailed, match="oauth_cb raised OSError") as raised,
    ):
        connect(server, guarded)
    assert "hunter2" not in str(raised.value)
    assert (raised.value.retriable, raised.value.fatal) == (True, False)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_wrong_password_is_reported_in_the_brokers_words_without_the_password() -> None:
    guard = ScriptedAuthentication(
        SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username or password")
    )
    with ScriptedServer(guard) as server, pytest.raises(AuthenticationFailed) as raised:
        connect(server, security())
    assert str(raised.value) == (
        f"{server.address}: SASL PLAIN failed (SASL_AUTHENTICATION_FAILED): Invalid username or password"
    )
    assert (raised.value.code, raised.value.fatal) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)


def test_a_mechanism_that_the_broker_lacks_is_answered_with_those_it_has() -> None:
    script = refusing(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "SCRAM-SHA-512", "GSSAPI")
    with ScriptedServer(script) as server, pytest.raises(AuthenticationFailed) as raised:
        connect(server, security())
    assert "SASL PLAIN cannot be used" in str(raised.value)
    assert "the broker takes SCRAM-SHA-512, GSSAPI: set sasl.mechanism" in str(raised.value)


def test_a_listener_without_sasl_is_said_to_be_one() -> None:
    script = refusing(ErrorCode.ILLEGAL_SASL_STATE)
    with ScriptedServer(script) as server, pytest.raises(AuthenticationFailed) as raised:
        connect(server, security())
    assert "this listener has no SASL: set security.protocol to PLAINTEXT" in str(raised.value)


def test_a_broker_of_before_sasl_authenticate_is_refused() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions({SASL_HANDSHAKE.key: (0, 0)})
        peer.expect_end()

    with ScriptedServer(script) as server, pytest.raises(UnsupportedVersion, match=r"older than Kafka 1.0"):
        connect(server, security())


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_that_is_about_to_end_is_renewed_before_the_next_request() -> None:
    guard = ScriptedAuthentication(lifetimes_ms=(200, 3_600_000))
    began = time.monotonic()
    with ScriptedServer(guard) as server, connect(server, security()) as connection:
        due = connection._reauthenticate_at
        assert due is not None
        assert began + 0.1 < due <= time.monotonic() + 0.19, "before the 200 ms are over"
        eventually(lambda: time.monotonic() >= due, "the session is about to end")
        connection.ask(HeartbeatRequest("g"))
        connection.ask(HeartbeatRequest("g"))
    again = ["SaslHandshake", "SaslAuthenticate"]
    assert guard.apis == [*again, *again, "Heartbeat", "Heartbeat"]


def test_without_a_lifetime_a_session_is_never_renewed() -> None:
    guard = ScriptedAuthentication(lifetimes_ms=(0,))
    with ScriptedServer(guard) as server, connect(server, security()) as connection:
        connection.ask(HeartbeatRequest("g"))
        assert connection._reauthenticate_at is None
    assert guard.apis == ["SaslHandshake", "SaslAuthenticate", "Heartbeat"]


def test_answers_that_come_while_a_session_is_renewed_are_kept() -> None:
    guard = ScriptedAuthentication(lifetimes_ms=(1, 0))
    with ScriptedServer(guard) as server, connect(server, security()) as connection:
        eventually(lambda: time.monotonic() >= (connection._reauthenticate_at or 0), "the session is about to end")
        due, connection._reauthenticate_at = connection._reauthenticate_at, None
        first = connection.send(HeartbeatRequest("g"))
        connection._reauthenticate_at = due
        second = connection.send(HeartbeatRequest("g"))
        assert connection.pending
        received = [connection.receive(time.monotonic() + PATIENCE_S) for _ in range(2)]
    assert [answer and answer[0] for answer in received] == [first, second]
    assert HEARTBEAT.name in guard.apis


def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    guard = ScriptedAuthentication(
        SaslAuthenticateResponse(session_lifetime_ms=1),
        SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no longer"),
    )
    with ScriptedServer(guard) as server, connect(server, security()) as connection:
        eventually(lambda: time.monotonic() >= (connection._reauthenticate_at or 0), "the session is about to end")
        with pytest.raises(AuthenticationFailed, match="no longer"):
            connection.send(HeartbeatRequest("g"))
        assert connection.closed
