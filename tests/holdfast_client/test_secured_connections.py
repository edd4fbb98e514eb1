"""TLS and SASL against a real Apache Kafka: what is let in, what is kept out and what is said then.

The same settings are given to confluent-kafka, through which the records come: it must be let in where we are.
"""

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, ConnectionLost
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode
from tests.holdfast_client.connections import PATIENCE_S, coordinator, patiently
from tests.holdfast_client.secured_apache_kafka import PASSWORD, REAUTHENTICATE_MS
from tests.holdfast_client.secured_kafka import SecuredKafka, credentials, secured_kafka, unsecured_token
from tests.support.certificates import KEY_PASSWORD
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def world(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as found:
        yield found


TRIED_FOR_S = 6.0
"""It is tried again until then; one attempt must have been answered, however slow the broker is."""


def within(seconds: float) -> float:
    return time.monotonic() + seconds


def network(config: dict[str, Any]) -> ClusterClient:
    return ClusterClient(NetworkSettings.from_config(config), runtime=SYSTEM)


def let_in(config: dict[str, Any], group: str) -> None:
    """Both planes reach the broker, and the coordinator answers."""
    with network(config) as client:
        coordinator(client, group)
        nodes = client.metadata((), patiently()).nodes
        assert [str(node.address) for node in nodes.values()] == [config["bootstrap.servers"]]
    consumer = confluent_kafka.Consumer(config | {"group.id": group})
    try:
        consumer.poll(0)  # serves oauth_cb
        assert consumer.list_topics(timeout=PATIENCE_S).brokers
    finally:
        consumer.close()


def kept_out(config: dict[str, Any]) -> AuthenticationFailed:
    with network(config) as client, pytest.raises(AuthenticationFailed) as raised:
        client.metadata((), patiently())
    assert PASSWORD not in str(raised.value)
    return raised.value


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_tls(world: SecuredKafka, group: str) -> None:
    let_in(world.config("TLS", **{"security.protocol": "SSL", "ssl.ca.location": str(world.authority)}), group)


def test_tls_with_certificates_as_text_and_a_cipher_suite(world: SecuredKafka, group: str) -> None:
    config = {
        "security.protocol": "ssl",
        "ssl.ca.pem": world.authority.read_text(),
        "ssl.certificate.pem": world.client.certificate.read_text(),
        "ssl.key.pem": world.client.encrypted_key.read_text(),
        "ssl.key.password": KEY_PASSWORD,
        "ssl.cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256",
    }
    let_in(world.config("MUTUAL", **config), group)


def test_mutual_tls(world: SecuredKafka, group: str) -> None:
    config = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(world.authority),
        "ssl.certificate.location": str(world.client.certificate),
        "ssl.key.location": str(world.client.key),
    }
    let_in(world.config("MUTUAL", **config), group)


def test_without_a_certificate_mutual_tls_keeps_us_out(world: SecuredKafka) -> None:
    failure = kept_out(world.config("MUTUAL", **{"security.protocol": "SSL", "ssl.ca.location": str(world.authority)}))
    assert "the broker ended TLS with" in str(failure)
    assert "see ssl.certificate.location" in str(failure)


def test_a_broker_with_an_untrusted_certificate_is_refused(world: SecuredKafka) -> None:
    failure = kept_out(world.config("TLS", **{"security.protocol": "SSL", "ssl.ca.location": str(world.untrusted)}))
    assert "the broker's certificate is not accepted" in str(failure)
    assert "see ssl.ca.location" in str(failure)


def test_a_broker_under_another_name_is_not_trusted_unless_names_do_not_count(world: SecuredKafka) -> None:
    config = {"security.protocol": "SSL", "ssl.ca.location": str(world.authority), "broker.address.family": "v4"}
    config["bootstrap.servers"] = world.kafka.secured("TLS", host="localhost")
    assert "localhost" in str(kept_out(config))
    with network(config | {"ssl.endpoint.identification.algorithm": "none"}) as client:
        assert client.metadata((), patiently()).nodes


def test_without_verification_any_certificate_is_accepted(world: SecuredKafka) -> None:
    config = world.config("TLS", **{"security.protocol": "SSL", "ssl.ca.location": str(world.untrusted)})
    with network(config | {"enable.ssl.certificate.verification": "false"}) as client:
        assert client.metadata((), patiently()).nodes


def test_plaintext_on_a_tls_listener_is_said_clearly(world: SecuredKafka) -> None:
    with network(world.config("TLS")) as client, pytest.raises(ConnectionFailed) as raised:
        client.metadata((), within(TRIED_FOR_S))
    assert "the broker sent TLS, but security.protocol is PLAINTEXT: set it to SSL or SASL_SSL" in str(raised.value)


# -- SASL --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_sasl(world: SecuredKafka, group: str, listener: str, mechanism: str) -> None:
    protocol = {"SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}[listener]
    config = {"security.protocol": protocol} | credentials(mechanism)
    if listener == "BOTH":
        config["ssl.ca.location"] = str(world.authority)
    let_in(world.config(listener, **config), group)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl.password": "wrong-secret"}, {"sasl.username": "nobody"}], ids=str)
def test_a_wrong_password_or_user_is_kept_out(world: SecuredKafka, mechanism: str, wrong: dict[str, str]) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT"} | credentials(mechanism) | wrong
    failure = kept_out(world.config("SASL", **config))
    assert f"SASL {mechanism} failed (SASL_AUTHENTICATION_FAILED)" in str(failure)
    assert failure.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong-secret" not in str(failure)


def test_a_token_that_is_none_is_kept_out(world: SecuredKafka) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    failure = kept_out(world.config("SASL", oauth_cb=lambda _: ("not.a.token", time.time() + 60), **config))
    assert "OAUTHBEARER" in str(failure)
    assert "not.a.token" not in str(failure)


def test_a_token_from_the_future_is_kept_out(world: SecuredKafka) -> None:
    """The control of `test_sasl`, whose token is issued in the same second: Kafka does compare the times."""
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    failure = kept_out(world.config("SASL", oauth_cb=lambda _: unsecured_token(_, issued_in_s=60), **config))
    assert "invalid_token" in str(failure)


def test_a_mechanism_that_the_listener_lacks_is_answered_with_those_it_has(world: SecuredKafka) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT"} | credentials("SCRAM-SHA-256")
    failure = kept_out(world.config("PLAINONLY", **config))
    assert "the broker takes PLAIN: set sasl.mechanism to one of them" in str(failure)


def test_no_sasl_on_a_listener_that_wants_it_is_said_clearly(world: SecuredKafka) -> None:
    with network(world.config("SASL")) as client, pytest.raises(ConnectionFailed) as raised:
        client.metadata((), within(TRIED_FOR_S))
    assert "a listener that wants SASL does that: see security.protocol" in str(raised.value)


# -- sessions that end -------------------------------------------------------------------------------------------------


def expiring(world: SecuredKafka) -> dict[str, Any]:
    return world.config("EXPIRING", **{"security.protocol": "SASL_PLAINTEXT"}, **credentials("PLAIN"))


def test_a_session_is_renewed_before_it_ends(world: SecuredKafka, group: str) -> None:
    with network(expiring(world)) as client, coordinator(client, group) as connection:
        renewals = {connection._reauthenticate_at}
        over = time.monotonic() + 3 * REAUTHENTICATE_MS / 1000

        def lived_on() -> bool:
            answer = connection.ask(HeartbeatRequest(group, 1, "nobody"), patiently())
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            renewals.add(connection._reauthenticate_at)
            return time.monotonic() > over

        eventually(lived_on, "the connection outlived three sessions")
        assert len(renewals) >= 3


def test_a_session_that_is_not_renewed_ends_the_connection(world: SecuredKafka, group: str) -> None:
    with network(expiring(world)) as client, coordinator(client, group) as connection:
        ends = time.monotonic() + REAUTHENTICATE_MS / 1000
        connection._reauthenticate_at = None
        eventually(lambda: time.monotonic() > ends, "the session is over")
        with pytest.raises(ConnectionLost):
            connection.ask(HeartbeatRequest(group, 1, "nobody"), patiently())
