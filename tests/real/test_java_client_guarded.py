"""Kafka's own Java clients and tools, behind Holdfast's TLS and passwords."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.security.acls import Operation
from tests.broker.guarded_broker import LISTENERS, MECHANISMS, PASSWORDS, GuardedBroker, user_acl
from tests.support.kafka_distribution import kafka_distribution, kafka_tool

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

TOPIC, GROUP = "orders", "billing"
RECORDS = 200
_SECURITY = "org.apache.kafka.common.security"
_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path_factory.mktemp("java"))
    broker.grant(
        user_acl("alice", Operation.READ, topic=TOPIC),
        user_acl("alice", Operation.WRITE, topic=TOPIC),
        user_acl("alice", Operation.READ, group=GROUP, prefixed=True),
    )
    with broker:
        with broker.connect_as("admin") as admin:
            admin.create_topic(TOPIC)
            admin.create_topic("salaries")
        yield broker


def properties(broker: GuardedBroker, directory: Path, user: str, mechanism: str, password: str = "") -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    secret = password or PASSWORDS[user]
    file = directory / f"{user}.properties"
    file.write_text(
        f"security.protocol={LISTENERS['BOTH']}\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={_SECURITY}.{module} required username="{user}" password="{secret}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.authority.certificate}\n"
    )
    return str(file)


def produce(broker: GuardedBroker, topic: str, config: str) -> str:
    return kafka_tool(
        _PRODUCER, "--bootstrap-server", broker.at("BOTH"), "--command-config", config, "--topic", topic,
        "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1",
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_java_client_produces_and_consumes_in_a_group(
    broker: GuardedBroker, tmp_path: Path, mechanism: str
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


def test_the_java_client_is_told_why_it_is_kept_out(broker: GuardedBroker, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.at("BOTH"), "--command-config")
    wrong = properties(broker, tmp_path, "alice", "SCRAM-SHA-256", "wrong")
    heard = said_by_tool(*at, wrong, "--list")
    assert "Authentication failed during authentication due to invalid credentials" in heard
    right = properties(broker, tmp_path, "alice", "SCRAM-SHA-256")
    heard = said_by_tool(*at, right, "--describe", "--group", "payroll")
    assert "GroupAuthorizationException" in heard


def test_kafkas_own_tool_shows_the_acls(broker: GuardedBroker, tmp_path: Path) -> None:
    config = properties(broker, tmp_path, "admin", "SCRAM-SHA-512")
    shown = kafka_tool(_ACLS, "--bootstrap-server", broker.at("BOTH"), "--command-config", config, "--list")
    assert f"resourceType=TOPIC, name={TOPIC}, patternType=LITERAL" in shown
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in shown
