"""A user whom Apache Kafka's authorizer does not let do everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has them, without saying so to mypy
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.cli.conftest import UserCli
from tests.groups.topics import make_topic, produce
from tests.holdfast_client.consumers import Watched, poll_until, watching
from tests.support.apache_kafka import HOST, ApacheKafka
from tests.support.eventually import eventually
from tests.support.quick_brokers import QUICK

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

USER, PASSWORD = "alice", "alices-secret"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


class AuthorizingKafka(ApacheKafka):
    """Any client that comes without a password may do everything; any client that has one, what was granted."""

    secured = ""

    def _write_properties(self) -> None:
        port, controller_port = self._ports or (0, 0)
        (guarded_port,) = self._further_ports(1)
        self.secured = f"{HOST}:{guarded_port}"
        self._overrides |= {
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port},GUARDED://{self.secured}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},GUARDED://{self.secured}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": _LOGIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        super()._write_properties()

    def grant(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
        binding = AclBinding(kind, name, literal, f"User:{USER}", "*", operation, allow)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # named: it must outlive its question
        for done in admin.create_acls([binding]).values():
            done.result(timeout=60)


@pytest.fixture(scope="module")
def kafka(apache_kafka_distribution: object) -> Iterator[AuthorizingKafka]:
    with AuthorizingKafka(QUICK) as broker:
        yield broker


@pytest.fixture
def alice(kafka: AuthorizingKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> UserCli:
    settings = {
        "bootstrap.servers": kafka.secured,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    return UserCli(settings, tmp_path, capsys)


def test_removing_members_needs_a_right_to_the_group_and_the_sentence_names_it(
    kafka: AuthorizingKafka, alice: UserCli, topic: str, group: str
) -> None:
    make_topic(kafka, topic)
    static = Watched(kafka, group, group_instance_id="node-1", session_timeout_ms=60_000).subscribe(topic)
    with watching(static):
        poll_until(lambda: static.partitions, "a member", static)
        static.consumer.close()
    words = ("groups", "remove-members", "--group", group, "--instance-ids", "node-1")
    refusal = (
        f"holdfast groups remove-members: this user may not remove members of group {group!r}: it needs READ and "
        "DESCRIBE on the group (GROUP_AUTHORIZATION_FAILED)\n"
    )
    describe = ("groups", "describe", "--group", group, "--members")

    assert alice.run(*words) == (1, "", refusal)
    code, out, errors = alice.run(*describe)
    assert (code, out, errors.count("\n")) == (1, "", 1)
    assert "GROUP_AUTHORIZATION_FAILED" in errors

    kafka.grant(ResourceType.GROUP, group, AclOperation.DESCRIBE)
    eventually(lambda: alice.run(*describe)[0] == 0, "she may look")
    assert alice.run(*words) == (1, "", refusal)
    assert "node-1" in alice.run(*describe)[1]

    kafka.grant(ResourceType.GROUP, group, AclOperation.READ)
    eventually(lambda: alice.run(*words)[0] == 0, "she may remove")
    assert "node-1" not in alice.run(*describe)[1]


def test_configs_of_a_group_need_rights_to_see_and_to_change(
    kafka: AuthorizingKafka, alice: UserCli, group: str
) -> None:
    show = ("groups", "configure", "--group", group)
    change = (*show, "--set", "consumer.session.timeout.ms=50000")
    for words in (show, change):
        code, out, errors = alice.run(*words)
        assert (code, out, errors.count("\n")) == (1, "", 1)
        assert "GROUP_AUTHORIZATION_FAILED" in errors and "this user lacks the permission" in errors

    kafka.grant(ResourceType.GROUP, group, AclOperation.DESCRIBE)
    kafka.grant(ResourceType.GROUP, group, AclOperation.DESCRIBE_CONFIGS)
    eventually(lambda: alice.run(*show)[0] == 0, "she may look")
    code, out, errors = alice.run(*change)
    assert (code, out) == (1, "")
    assert f"configs of group {group!r}: GROUP_AUTHORIZATION_FAILED" in errors

    kafka.grant(ResourceType.GROUP, group, AclOperation.ALTER_CONFIGS)
    eventually(lambda: alice.run(*change)[0] == 0, "she may change")


def test_topics_need_rights_too(kafka: AuthorizingKafka, alice: UserCli, topic: str) -> None:
    code, out, errors = alice.run("topics", "create", "--topic", topic)
    assert (code, out, errors.count("\n")) == (1, "", 1)
    assert "TOPIC_AUTHORIZATION_FAILED: this user may not do that to the topic" in errors
    make_topic(kafka, topic)
    assert topic not in alice.run("topics", "list")[1]
    code, out, errors = alice.run("consume", "--topic", topic)
    assert (code, out, errors.count("\n")) == (1, "", 1)
    assert "this user may not see it" in errors


def test_the_file_lets_records_through_as_well(
    kafka: AuthorizingKafka, alice: UserCli, topic: str, group: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic, 1)
    produce(kafka, topic, 2, partitions=1)
    lines = tmp_path / "lines"
    lines.write_text("hers\n")
    for kind, name, operation in (
        (ResourceType.TOPIC, topic, AclOperation.READ),
        (ResourceType.TOPIC, topic, AclOperation.WRITE),
        (ResourceType.GROUP, group, AclOperation.READ),
    ):
        kafka.grant(kind, name, operation)
    eventually(lambda: alice.run("produce", str(lines), "--topic", topic)[0] == 0, "she may write")
    read = ("consume", "--topic", topic, "--from-beginning", "--max-messages", "3")
    assert alice.run(*read) == (0, "0\n1\nhers\n", "")
    assert alice.run(*read, "--group", group) == (0, "0\n1\nhers\n", "")
