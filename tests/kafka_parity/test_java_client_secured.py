"""Kafka's own Java clients and tools, behind Holdfast's TLS and passwords."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from holdfast import Admin
from holdfast.broker.authorization.acls import Operation
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.error_codes import ErrorCode
from tests.broker.secured_broker import LISTENERS, MECHANISMS, PASSWORDS, SecuredBroker, authenticate, user_acl
from tests.broker.wire_client import batch
from tests.client_compat.client import Record
from tests.client_compat.java_client import JVM_OPTIONS, SOURCE
from tests.client_compat.line_records import as_sent, as_stored
from tests.support.eventually import eventually
from tests.support.java_assignors import java_command
from tests.support.kafka_distribution import kafka_distribution, kafka_tool
from tests.support.line_rpc import CallFailed, LineRpc

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

TOPIC, SECRET_TOPIC, GROUP = "orders", "salaries", "billing"
RECORDS = 200
PATIENCE_S = 60.0
_SECURITY = "org.apache.kafka.common.security"
_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_ACLS = "org.apache.kafka.tools.AclCommand"
_CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Alice may write to and read from `orders` as a member of any group `billing…`; nobody but admin the salaries, of
    which bob may describe, as well as those groups."""
    broker = SecuredBroker(tmp_path_factory.mktemp("java"))
    broker.grant(
        user_acl("alice", Operation.READ, topic=TOPIC),
        user_acl("alice", Operation.WRITE, topic=TOPIC),
        user_acl("alice", Operation.READ, group=GROUP, prefixed=True),
        user_acl("bob", Operation.DESCRIBE, topic=SECRET_TOPIC),
        user_acl("bob", Operation.DESCRIBE, group=GROUP, prefixed=True),
    )
    with broker:
        with broker.connect_as("admin") as admin:
            admin.create_topic(TOPIC)
            admin.create_topic(SECRET_TOPIC)
        yield broker


def settings(
    broker: SecuredBroker, user: str, mechanism: str = "SCRAM-SHA-256", listener: str = "BOTH", password: str = ""
) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    secret = password or PASSWORDS[user]
    return {
        "security.protocol": LISTENERS[listener],
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{_SECURITY}.{module} required username="{user}" password="{secret}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.authority.certificate),
        "bootstrap.servers": broker.at(listener),
    }


def properties(broker: SecuredBroker, directory: Path, user: str, mechanism: str, password: str = "") -> str:
    file = directory / f"{user}.properties"
    found = settings(broker, user, mechanism, password=password)
    file.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
    return str(file)


def produce(broker: SecuredBroker, topic: str, config: str) -> str:
    return kafka_tool(
        _PRODUCER, "--bootstrap-server", broker.at("BOTH"), "--command-config", config, "--topic", topic,
        "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1",
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_java_client_produces_and_consumes_in_a_group(
    broker: SecuredBroker, tmp_path: Path, mechanism: str
) -> None:
    config = properties(broker, tmp_path, "alice", mechanism)
    assert f"{RECORDS} records sent" in produce(broker, TOPIC, config)
    read = kafka_tool(
        _CONSUMER, "--bootstrap-server", broker.at("BOTH"), "--command-config", config, "--topic", TOPIC,
        "--group", f"{GROUP}-{mechanism}", "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000",
    )  # fmt: skip
    assert len(read.splitlines()) == RECORDS
    described = kafka_tool(
        _GROUPS, "--bootstrap-server", broker.at("BOTH"), "--command-config", config,
        "--describe", "--group", f"{GROUP}-{mechanism}",
    )  # fmt: skip
    assert TOPIC in described


def said_by_tool(*words: str) -> str:
    """All that the tool for groups says; it ends with exit code 0 also when it could not do what it was asked."""
    command = kafka_distribution().command(_GROUPS, *words, jvm_options=("-Xmx256M", "-Dlog.level=WARN"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_the_java_client_reports_why_it_is_rejected(broker: SecuredBroker, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.at("BOTH"), "--command-config")
    wrong = properties(broker, tmp_path, "alice", "SCRAM-SHA-256", "wrong")
    heard = said_by_tool(*at, wrong, "--list")
    assert "Authentication failed during authentication due to invalid credentials" in heard
    right = properties(broker, tmp_path, "alice", "SCRAM-SHA-256")
    heard = said_by_tool(*at, right, "--describe", "--group", "payroll")
    assert "GroupAuthorizationException" in heard


def test_kafkas_own_tool_shows_the_acls(broker: SecuredBroker, tmp_path: Path) -> None:
    config = properties(broker, tmp_path, "admin", "SCRAM-SHA-512")
    shown = kafka_tool(_ACLS, "--bootstrap-server", broker.at("BOTH"), "--command-config", config, "--list")
    assert f"resourceType=TOPIC, name={TOPIC}, patternType=LITERAL" in shown
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in shown


def test_kafkas_own_tools_add_a_user_and_grant_it_a_topic(broker: SecuredBroker, tmp_path: Path) -> None:
    config = properties(broker, tmp_path, "admin", "SCRAM-SHA-512")
    at = ("--bootstrap-server", broker.at("BOTH"), "--command-config", config)
    granted = ("--allow-principal", "User:dave", "--operation", "Read", "--topic", TOPIC)

    kafka_tool(
        _CONFIGS, *at, "--alter", "--entity-type", "users", "--entity-name", "dave",
        "--add-config", "SCRAM-SHA-256=[password=daves]",
    )  # fmt: skip
    kafka_tool(_ACLS, *at, "--add", *granted)
    described = kafka_tool(_CONFIGS, *at, "--describe", "--entity-type", "users", "--entity-name", "dave")

    assert "SCRAM-SHA-256=iterations=4096" in described
    with broker.connect() as dave:
        assert authenticate(dave, "dave", "daves", "SCRAM-SHA-256").error_code == 0
        assert dave.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 9).topics[0].error_code == 0
        kafka_tool(_ACLS, *at, "--remove", "--force", *granted)
        refused = dave.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 9).topics[0].error_code
    assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# -- who is kept out, all in one JVM -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clients(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineRpc]:
    """Java's own clients. Left to itself, Java speaks no TLS before 1.2: here it would, if it is asked to."""
    security = tmp_path_factory.mktemp("jvm") / "java.security"
    security.write_text("jdk.tls.disabledAlgorithms=SSLv3\n")
    with closing(LineRpc(java_command(SOURCE, *JVM_OPTIONS, f"-Djava.security.properties={security}"))) as jvm:
        yield jvm


def refusal(clients: LineRpc, config: dict[str, str]) -> str:
    """What is said to a client that is not let in."""
    with pytest.raises(CallFailed) as refused:
        clients.call("topics", settings=config)
    return str(refused.value)


def sees_topics(clients: LineRpc, config: dict[str, str]) -> bool:
    return TOPIC in clients.call("topics", settings=config)


@contextmanager
def reading(clients: LineRpc, config: dict[str, str], topic: str, start: int) -> Iterator[int]:
    reader = clients.call("open", settings=config, topic=topic, partition=0, start=start)
    try:
        yield reader
    finally:
        clients.call("close", reader=reader)


def values(clients: LineRpc, reader: int) -> list[bytes | None]:
    """Of the next records."""
    deadline = time.monotonic() + PATIENCE_S
    while not (polled := clients.call("poll", reader=reader, timeout_ms=1_000)):
        assert time.monotonic() < deadline, "neither a record nor a refusal"
    return [as_stored(record).value for record in polled]


def test_an_expired_certificate_of_the_brokers_own_is_refused_by_the_java_client(
    broker: SecuredBroker, clients: LineRpc
) -> None:
    end = -1
    expired = broker.authority.sign("expired-for-java", "IP:127.0.0.1", days=-1)

    def produce(value: bytes) -> None:
        unencrypted = settings(broker, "alice", listener="SASL")
        records = [as_sent(Record(value=value))]
        clients.call("produce", settings=unencrypted, topic=TOPIC, partition=0, records=records)

    # given a consumer that reads since before it expired
    with reading(clients, settings(broker, "alice"), TOPIC, end) as reader, ExitStack() as stack:
        clients.call("position", reader=reader)  # asks where the end is
        produce(b"before")
        assert values(clients, reader) == [b"before"]
        stack.enter_context(broker.showing(expired))

        # then any client that comes later refuses to talk
        said = refusal(clients, settings(broker, "alice"))
        assert "SslAuthenticationException" in said and "CertificateExpiredException" in said

        # and the others are served: who needs no certificate, and who was there
        produce(b"meanwhile")
        assert values(clients, reader) == [b"meanwhile"]

    # the control: with a new one the user is let in
    assert sees_topics(clients, settings(broker, "alice"))


def test_the_java_client_cannot_talk_the_broker_down(broker: SecuredBroker, clients: LineRpc) -> None:
    """Neither to an old TLS, nor to none, nor to sending the password itself; each beside what is let in."""
    encrypted = settings(broker, "alice", "PLAIN")
    for version in ("TLSv1", "TLSv1.1"):
        said = refusal(clients, encrypted | {"ssl.protocol": version, "ssl.enabled.protocols": version})
        assert "SslAuthenticationException" in said
        assert "Received fatal alert: protocol_version" in said, "it is the broker who refuses"
    assert sees_topics(clients, encrypted | {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.2"})

    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        failures = broker.log_text().count("the TLS handshake failed: wrong version number")
        soon = {"default.api.timeout.ms": "5000", "request.timeout.ms": "4000"}
        assert "TimeoutException" in refusal(clients, encrypted | soon | {"security.protocol": protocol})
        assert broker.log_text().count("the TLS handshake failed: wrong version number") > failures

    said = refusal(clients, settings(broker, "alice", "PLAIN", "SCRAMONLY"))
    assert "UnsupportedSaslMechanismException" in said and "enabled mechanisms are [SCRAM-SHA-256]" in said
    assert sees_topics(clients, settings(broker, "alice", "SCRAM-SHA-256", "SCRAMONLY"))
    assert PASSWORDS["alice"] not in said + broker.log_text()


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_the_java_client_reads_nothing_of_a_topic_that_is_not_its_own(
    broker: SecuredBroker, clients: LineRpc, user: str
) -> None:
    """Alice may not see it, bob may see that it is there."""
    with broker.connect_as("admin") as admin:
        assert admin.produce(SECRET_TOPIC, batch(b"a salary")).error_code == 0

    with (
        reading(clients, settings(broker, user), SECRET_TOPIC, 0) as reader,
        pytest.raises(CallFailed, match="TopicAuthorizationException") as refused,
    ):
        values(clients, reader)
    assert refused.value.errno == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    # the control
    with reading(clients, settings(broker, "admin"), SECRET_TOPIC, 0) as reader:
        assert b"a salary" in values(clients, reader)


def test_the_java_admin_cannot_remove_members_without_permission(broker: SecuredBroker, clients: LineRpc) -> None:
    # given a static member of a group of alice's
    group = f"{GROUP}-of-nodes"
    static = {"group.id": group, "group.instance.id": "node-1", "session.timeout.ms": 60_000}
    with (
        Admin(broker.settings("admin")) as admin,
        closing(Consumer(broker.settings("alice") | static)) as member,
    ):

        def members() -> list[str]:
            return [one.member_id for one in admin.describe_group(group).members]

        member.subscribe([TOPIC])
        eventually(lambda: member.poll(0.1) or member.assignment(), "she is a member", PATIENCE_S)
        (before,) = members()

        # when bob, who may see it, removes it by its name, or with all others
        for instance_ids in (["node-1"], []):
            with pytest.raises(CallFailed) as refused:
                clients.call("remove_members", settings=settings(broker, "bob"), group=group, instance_ids=instance_ids)
            # then the user is refused
            assert "GroupAuthorizationException" in str(refused.value)

        # and it is still there
        assert members() == [before]

        # the control: one who may
        clients.call("remove_members", settings=settings(broker, "alice"), group=group, instance_ids=["node-1"])
        assert members() == []
