"""Who is let in by a password, who is not, and what can be asked before."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from holdfast.broker.authorization.users_file import Users
from holdfast.client.sasl import Sasl
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from tests.broker.secured_broker import (
    FEW_ITERATIONS,
    MECHANISMS,
    PASSWORDS,
    SecuredBroker,
    authenticate,
    handshake,
    token,
)
from tests.broker.wire_client import PATIENCE_S, WireClient, batch, produce_request
from tests.support.eventually import eventually

UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 33, 34, 35, 58
TIMEOUT_MS = 2_000
DELAY_S = 0.1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authentication.timeout.ms": str(TIMEOUT_MS)}
    with SecuredBroker(tmp_path_factory.mktemp("passwords"), settings) as started:
        with started.connect_as("admin") as admin:
            admin.create_topic("orders")
        yield started


def may_produce(client: WireClient) -> bool:
    return client.produce("orders", batch(b"x")).error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_opens_and_the_session_does_not_end(broker: SecuredBroker, mechanism: str) -> None:
    with broker.connect() as client:
        answer = authenticate(client, "admin", PASSWORDS["admin"], mechanism)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert may_produce(client)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_refused_alike_late_and_for_good(
    broker: SecuredBroker, mechanism: str
) -> None:
    answers = []
    for user, password in (("admin", "wrong"), ("nobody-here", "wrong")):
        with broker.connect() as client:
            began = time.monotonic()
            answers.append(authenticate(client, user, password, mechanism))
            assert time.monotonic() - began > DELAY_S * 0.9, "guessing is slow"
            assert client.is_closed_by_broker()
    assert answers[0] == answers[1]
    assert answers[0].error_code == SASL_AUTHENTICATION_FAILED
    expected = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert answers[0].error_message == expected


def test_what_scram_asks_of_an_unknown_user_is_what_it_asks_of_a_known_one_and_stays(broker: SecuredBroker) -> None:
    def asked(user: str) -> list[tuple[str, str]]:
        with broker.connect() as client:
            handshake(client, "SCRAM-SHA-256")
            said = token(client, next(Sasl("SCRAM-SHA-256", user, "wrong").begin())).auth_bytes.decode()
            return [(part[:2], part[2:]) for part in said.split(",")]

    known, unknown, again = asked("alice"), asked("nobody-here"), asked("nobody-here")
    assert [name for name, _ in known] == [name for name, _ in unknown] == ["r=", "s=", "i="]
    assert unknown[1] == again[1], "the same salt"
    assert unknown[1] != known[1]
    assert len(unknown[1][1]) == len(known[1][1])
    assert unknown[2] == known[2], "as many iterations"
    assert unknown[0] != again[0], "and another nonce"


# -- before ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True], ids=["at first", "halfway"])
def test_nothing_is_served_before(broker: SecuredBroker, begun: bool) -> None:
    for request, version in ((produce_request("orders", batch(b"x")), 9), (MetadataRequest(None), 9)):
        with broker.connect() as client:
            assert client.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0, "but for what we can do"
            if begun:
                assert handshake(client, "SCRAM-SHA-256").error_code == 0
            client.send(request, version)
            assert client.is_closed_by_broker()
    eventually(lambda: "Produce before authentication" in broker.log_text(), "the log says so")
    with broker.connect_as("admin") as admin:  # the control
        assert may_produce(admin)


def test_a_produce_behind_the_password_in_one_go_waits_for_its_outcome(broker: SecuredBroker) -> None:
    for password, served in ((PASSWORDS["admin"], True), ("wrong", False)):
        with broker.connect() as client:
            handshake(client, "PLAIN")
            client.send(SaslAuthenticateRequest(f"\0admin\0{password}".encode()), 2)
            client.send(produce_request("orders", batch(b"x")), 9)
            answer = client.receive(SASL_AUTHENTICATE, 2)[1]
            assert (answer.error_code == 0) is served
            if served:
                client.receive(PRODUCE, 9)
            else:
                assert client.is_closed_by_broker()


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(broker: SecuredBroker) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "GSSAPI", "", "ANONYMOUS"):
        with broker.connect("SCRAMONLY") as client:
            answer = handshake(client, mechanism)
            assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256"])
            assert client.is_closed_by_broker()
    with broker.connect_as("admin", "SCRAM-SHA-256", "SCRAMONLY") as client:  # the control
        assert may_produce(client)


def test_a_password_for_a_mechanism_that_was_not_chosen_is_refused(broker: SecuredBroker) -> None:
    with broker.connect() as client:
        handshake(client, "SCRAM-SHA-256")
        answer = token(client, f"\0admin\0{PASSWORDS['admin']}".encode())
        assert answer.error_code == SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_broker()


def test_a_password_before_the_handshake_and_a_second_handshake_are_illegal(broker: SecuredBroker) -> None:
    with broker.connect() as client:
        assert token(client, f"\0admin\0{PASSWORDS['admin']}".encode()).error_code == ILLEGAL_SASL_STATE
        assert client.is_closed_by_broker()
    with broker.connect() as client:
        handshake(client, "SCRAM-SHA-256")
        assert handshake(client, "PLAIN").error_code == ILLEGAL_SASL_STATE
        assert client.is_closed_by_broker()


def test_tokens_without_a_header_are_refused_in_time(broker: SecuredBroker) -> None:
    with broker.connect() as client:
        assert handshake(client, "PLAIN", version=0).error_code == UNSUPPORTED_VERSION
        assert client.is_closed_by_broker()


def test_a_connection_cannot_authenticate_again_as_another_user(broker: SecuredBroker) -> None:
    with broker.connect_as("alice") as client:
        assert handshake(client, "PLAIN").error_code == ILLEGAL_SASL_STATE
        assert token(client, f"\0admin\0{PASSWORDS['admin']}".encode()).error_code == ILLEGAL_SASL_STATE
        assert not may_produce(client), "still alice, who may not"
    with broker.connect_as("admin") as client:  # the control
        assert may_produce(client)


# -- what an unauthenticated client can hold up ------------------------------------------------------------------------


def test_a_long_request_of_an_unauthenticated_client_is_not_processed(broker: SecuredBroker) -> None:
    long = struct.pack(">i", 64 * 1024 + 1)
    with broker.connect() as client:
        client.send_bytes(long)
        assert client.is_closed_by_broker()
    eventually(lambda: "(sasl.server.max.receive.size) is 65536" in broker.log_text(), "the log says so")
    with broker.connect_as("admin") as client:  # the control: from one whom we know it may be long
        assert client.produce("orders", batch(bytes(200_000))).error_code == 0


def test_clients_that_do_not_authenticate_in_time_are_disconnected(broker: SecuredBroker) -> None:
    with broker.connect_as("admin") as known, broker.connect() as silent, broker.connect() as halfway:
        handshake(halfway, "SCRAM-SHA-256")
        began = time.monotonic()
        assert silent.is_closed_by_broker()
        assert halfway.is_closed_by_broker()
        assert TIMEOUT_MS / 1000 * 0.5 < time.monotonic() - began < PATIENCE_S
        assert may_produce(known), "the control: one whom we know may be silent for longer"


def test_password_guesses_do_not_delay_other_clients(broker: SecuredBroker) -> None:
    guessers = [broker.connect() for _ in range(50)]
    try:
        for guesser in guessers:
            handshake(guesser, "PLAIN")
        with broker.connect_as("admin") as client:
            for guesser in guessers:
                guesser.send(SaslAuthenticateRequest(b"\0admin\0wrong"), 2)
            slowest = 0.0
            for _ in range(50):
                began = time.monotonic()
                assert may_produce(client)
                slowest = max(slowest, time.monotonic() - began)
        assert slowest < 2, "no produce waits for the hashes of fifty guesses"
        for guesser in guessers:
            answer = guesser.receive(SASL_AUTHENTICATE, 2)[1]
            assert answer.error_code == SASL_AUTHENTICATION_FAILED
    finally:
        for guesser in guessers:
            guesser.socket.close()


# -- the file changes --------------------------------------------------------------------------------------------------


def test_a_new_password_holds_within_seconds_and_the_old_one_no_longer(broker: SecuredBroker) -> None:
    users = broker.users
    with broker.connect_as("bob") as before, broker.connect_as("alice") as bystander:
        try:
            broker.write(users.with_user("bob", "another-secret", FEW_ITERATIONS))
            assert before.is_closed_by_broker(), "who came in by the old one"
            with broker.connect() as client:
                assert authenticate(client, "bob", "another-secret", "SCRAM-SHA-256").error_code == 0
            with broker.connect() as client:
                old = authenticate(client, "bob", PASSWORDS["bob"], "SCRAM-SHA-256")
                assert old.error_code == SASL_AUTHENTICATION_FAILED
            assert bystander.ask(ApiVersionsRequest(), 0).error_code == 0, "and nobody else notices"
        finally:
            broker.write(users)
        eventually(lambda: is_let_in(broker, "bob"), "the old one again")


def is_let_in(broker: SecuredBroker, user: str) -> bool:
    with broker.connect() as client:
        try:
            return authenticate(client, user, PASSWORDS[user], "SCRAM-SHA-256").error_code == 0
        except ConnectionError:
            return False  # passwords changed just then: any client that was about to prove one has to begin again


def test_a_broken_file_changes_nothing(broker: SecuredBroker) -> None:
    users: Users = broker.users
    broker.users_file.write_text("{")
    eventually(lambda: "stay in force" in broker.log_text(), "it is refused")
    assert is_let_in(broker, "bob")
    broker.write(users)


def test_no_password_is_in_the_log(broker: SecuredBroker) -> None:
    said = broker.log_text()
    assert "authentication failed" in said
    assert not [password for password in PASSWORDS.values() if password in said]
