"""A gateway in front of a Kafka with SASL and ACLs: users, passwords and permissions are Kafka's own."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import make_authority
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_distribution import KafkaDistribution

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

USERS = ("alice", "bob", "gateway", "operator")
RECORDS = 10
PATIENCE_S = 60
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.name.gw.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.gw.plain.sasl.jaas.config": f"{_LOGIN} {' '.join(f'user_{name}={name}-secret' for name in USERS)};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The direct listener has no authentication; only the test uses it.
    "super.users": "User:ANONYMOUS;User:gateway;User:operator",
}


@pytest.fixture(scope="module")
def secured(apache_kafka_distribution: KafkaDistribution) -> Iterator[KafkaCluster]:
    with KafkaCluster(1, SECURED, gateway_protocol="SASL_PLAINTEXT") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic("open", 2, 1), NewTopic("secret", 1, 1)]).values():
            created.result(PATIENCE_S)
        acls = [
            allowed("alice", ResourceType.TOPIC, "open", AclOperation.READ),
            allowed("alice", ResourceType.TOPIC, "open", AclOperation.WRITE),
            allowed("alice", ResourceType.GROUP, "alices", AclOperation.READ),
            allowed("bob", ResourceType.TOPIC, "open", AclOperation.READ),
        ]
        for granted in admin.create_acls(acls).values():
            granted.result(PATIENCE_S)
        yield kafka


def allowed(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def upstream_options() -> list[str]:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "gateway",
        "sasl.password": "gateway-secret",
    }
    return [word for name, value in properties.items() for word in ("--kafka-set", f"{name}={value}")]


@pytest.fixture(scope="module")
def gateway(secured: KafkaCluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(secured, options=upstream_options()) as process:
        with Producer(settings(process, "alice")) as producer:
            for number in range(RECORDS):
                producer.produce("open", str(number))
            assert producer.flush(PATIENCE_S) == 0
        yield process


def settings(gateway: GatewayProcess, user: str, password: str | None = None, **further: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or f"{user}-secret",
        **further,
    }


def read(gateway: GatewayProcess, user: str, group: str) -> int | KafkaError:
    """How many records a new member of the group reads, or its error."""
    deadline = time.monotonic() + PATIENCE_S
    with Consumer(settings(gateway, user, **{"group.id": group, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe(["open"])
        count = 0
        while count < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if error is not None:
                return error
            count += message is not None
        return count


def commit(gateway: GatewayProcess, user: str, group: str, **further: Any) -> None:
    with Consumer(settings(gateway, user, **{"group.id": group, **further})) as consumer:
        consumer.commit(offsets=[TopicPartition("open", 0, 1)], asynchronous=False)


def code_of(outcome: int | KafkaError) -> int | str:
    return outcome if isinstance(outcome, int) else outcome.name()


def test_the_permissions_of_kafka_decide_about_groups(gateway: GatewayProcess) -> None:
    assert read(gateway, "alice", "alices") == RECORDS
    assert code_of(read(gateway, "alice", "others")) == "GROUP_AUTHORIZATION_FAILED"
    assert code_of(read(gateway, "bob", "alices")) == "GROUP_AUTHORIZATION_FAILED", "rights are those of the user"


def test_offsets_of_a_topic_that_a_user_may_not_read_are_not_committed(gateway: GatewayProcess) -> None:
    with Consumer(settings(gateway, "alice", **{"group.id": "alices"})) as consumer:
        with pytest.raises(KafkaException, match="Topic authorization failed"):
            consumer.commit(offsets=[TopicPartition("secret", 0, 5)], asynchronous=False)
        consumer.commit(offsets=[TopicPartition("open", 0, 1)], asynchronous=False)  # the control


def test_only_users_that_may_delete_a_group_can(gateway: GatewayProcess) -> None:
    commit(gateway, "alice", "alices")
    alice, operator = (AdminClient(settings(gateway, user)) for user in ("alice", "operator"))
    with pytest.raises(KafkaException, match="Group authorization failed"):
        alice.delete_consumer_groups(["alices"])["alices"].result(PATIENCE_S)
    operator.delete_consumer_groups(["alices"])["alices"].result(PATIENCE_S)


def test_a_user_sees_the_groups_that_kafka_would_show_it(gateway: GatewayProcess) -> None:
    commit(gateway, "alice", "alices")
    commit(gateway, "operator", "operators")

    def listed(user: str) -> set[str]:
        admin = AdminClient(settings(gateway, user))  # named: it must outlive its question
        found = admin.list_consumer_groups().result(PATIENCE_S)
        return {group.group_id for group in found.valid}

    assert {"alices", "operators"} <= listed("operator")
    assert listed("alice") == {"alices"}


def test_a_wrong_password_is_rejected_by_kafka(gateway: GatewayProcess) -> None:
    errors: list[KafkaError] = []
    wrong = Consumer(settings(gateway, "alice", "wrong", **{"group.id": "alices", "error_cb": errors.append}))
    wrong.subscribe(["open"])
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        wrong.poll(1)
    wrong.close()


def test_tls_ends_at_the_gateway(secured: KafkaCluster, tmp_path: Path, gateway: GatewayProcess) -> None:
    gateway.stop()
    authority = make_authority(tmp_path)
    certificate = authority.sign("gateway", "IP:127.0.0.1")
    host, port = secured.gateway_address
    options = [*upstream_options(), "--listen", f"SSL://{host}:{port}"]
    files = {"ssl.certificate.location": str(certificate.certificate), "ssl.key.location": str(certificate.key)}
    with GatewayProcess(secured, files, options) as encrypted:
        over_tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.certificate)}
        commit(encrypted, "alice", "alices", **over_tls)
        with pytest.raises(KafkaException):  # the control: without TLS nobody gets in
            AdminClient(settings(encrypted, "alice")).list_topics(timeout=3)
    gateway.start()
