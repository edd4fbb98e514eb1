"""A user whom Holdfast does not let do everything: each command says in a sentence what it needs, and works with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from holdfast import Admin
from holdfast.broker.authorization.acls import Operation
from tests.broker.secured_broker import SecuredBroker, user_acl
from tests.broker.wire_client import batch
from tests.cli.conftest import UserCli
from tests.support.eventually import eventually

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Where alice may do nothing until a test grants it."""
    with SecuredBroker(tmp_path_factory.mktemp("guarded")) as started:
        yield started


@pytest.fixture
def alice(broker: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> UserCli:
    return UserCli(broker.settings("alice"), tmp_path, capsys)


@pytest.fixture
def made_topic(broker: SecuredBroker, topic: str) -> str:
    """A topic with one record."""
    with broker.connect_as("admin") as admin:
        admin.create_topic(topic)
        assert admin.produce(topic, batch(b"there")).error_code == 0
    return topic


@pytest.fixture
def static_group(broker: SecuredBroker, made_topic: str, group: str) -> str:
    """A group with a static member, instance-1, whose process has ended."""
    static = {"group.id": group, "group.instance.id": "instance-1", "session.timeout.ms": 120_000}
    with closing(Consumer(broker.settings("admin") | static)) as member:
        member.subscribe([made_topic])
        eventually(lambda: member.poll(0.1) or member.assignment(), "a member", PATIENCE_S)
    return group


def static_instances(broker: SecuredBroker, group: str) -> list[str | None]:
    with Admin(broker.settings("admin")) as admin:
        return [one.group_instance_id for one in admin.describe_group(group).members]


def records(broker: SecuredBroker, topic: str) -> list[bytes | None]:
    with broker.connect_as("admin") as admin:
        return [record.value for record in admin.fetch_all(topic)]


def refused(alice: UserCli, code: str, needs: str, *words: str) -> None:
    """In one sentence that has the code and names the right."""
    said = alice.refused(*words)
    assert code in said, said
    assert said.endswith(f"this user lacks the permission: it needs {needs}"), said


TOPIC_REFUSED, GROUP_REFUSED = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"


# -- groups ------------------------------------------------------------------------------------------------------------


def test_removing_members(broker: SecuredBroker, alice: UserCli, static_group: str) -> None:
    words = ("groups", "remove-members", "--group", static_group, "--instance-ids", "instance-1")
    refusal = (
        f"holdfast groups remove-members: this user may not remove members of group {static_group!r}: it needs READ"
        f" and DESCRIBE on the group ({GROUP_REFUSED})"
    )

    assert alice.refused(*words) == refusal
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, group=static_group))
    assert alice.refused(*words) == refusal
    assert static_instances(broker, static_group) == ["instance-1"]

    broker.grant_now(user_acl("alice", Operation.READ, group=static_group))
    assert "removed" in alice.done(*words)
    assert static_instances(broker, static_group) == []


def test_registering_members(broker: SecuredBroker, alice: UserCli, group: str) -> None:
    words = ("groups", "add-members", "--group", group, "--instance-ids", "instance-1")

    refused(alice, GROUP_REFUSED, "READ on the group", *words)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, group=group))
    refused(alice, GROUP_REFUSED, "READ on the group", *words)
    refused(alice, GROUP_REFUSED, "READ on the group", "groups", "cancel-registration", "--group", group)

    broker.grant_now(user_acl("alice", Operation.READ, group=group))
    assert "registered" in alice.done(*words)
    assert "cancelled" in alice.done("groups", "cancel-registration", "--group", group)


def test_the_configs_of_a_group(broker: SecuredBroker, alice: UserCli, group: str) -> None:
    show = ("groups", "configure", "--group", group)
    change = (*show, "--target-size", "2")
    needs = "DESCRIBE and DESCRIBE_CONFIGS on the group, and ALTER_CONFIGS to change them"

    for operation in (None, Operation.DESCRIBE):
        if operation is not None:
            broker.grant_now(user_acl("alice", operation, group=group))
        for words in (show, change):
            refused(alice, GROUP_REFUSED, needs, *words)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE_CONFIGS, group=group))
    refused(alice, GROUP_REFUSED, needs, *change)
    assert {row["CONFIG"]: row["VALUE"] for row in alice.table(*show)}["target.group.size"] == "0", (
        "nothing was changed"
    )

    broker.grant_now(user_acl("alice", Operation.ALTER_CONFIGS, group=group))
    alice.done(*change)
    assert {row["CONFIG"]: row["VALUE"] for row in alice.table(*show)}["target.group.size"] == "2"


def test_looking_at_a_group(broker: SecuredBroker, alice: UserCli, made_topic: str, static_group: str) -> None:
    words = ("groups", "describe", "--group", static_group)
    views = ("--offsets", "--members", "--state")

    for view in views:
        refused(alice, GROUP_REFUSED, "DESCRIBE on the group and its topics", *words, view)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, group=static_group))
    assert "instance-1" in alice.done(*words, "--members")
    assert "Stable" in alice.done(*words, "--state")
    (row,) = alice.table(*words, "--offsets")
    assert (row["INSTANCE-ID"], row["LOG-END-OFFSET"]) == ("instance-1", "-"), "of the topic she may not know more"

    broker.grant_now(user_acl("alice", Operation.DESCRIBE, topic=made_topic))
    (row,) = alice.table(*words, "--offsets")
    assert (row["INSTANCE-ID"], row["LOG-END-OFFSET"]) == ("instance-1", "1")


def test_deleting_a_group(broker: SecuredBroker, alice: UserCli, static_group: str) -> None:
    with Admin(broker.settings("admin")) as admin:
        admin.remove_members(static_group, instance_ids=["instance-1"])
    words = ("groups", "delete", "--group", static_group)

    refused(alice, GROUP_REFUSED, "DELETE on the group", *words)
    broker.grant_now(user_acl("alice", Operation.READ, group=static_group))
    refused(alice, GROUP_REFUSED, "DELETE on the group", *words)

    broker.grant_now(user_acl("alice", Operation.DELETE, group=static_group))
    assert alice.done(*words) == f"{static_group}: deleted\n"


# -- topics ------------------------------------------------------------------------------------------------------------


def test_creating_and_deleting_a_topic(broker: SecuredBroker, alice: UserCli, topic: str) -> None:
    create, delete = (("topics", verb, "--topic", topic) for verb in ("create", "delete"))

    refused(alice, TOPIC_REFUSED, "CREATE on the topic or the cluster", *create)
    broker.grant_now(user_acl("alice", Operation.CREATE, topic=topic))
    assert alice.done(*create) == f"{topic}: created\n"

    refused(alice, TOPIC_REFUSED, "DELETE on the topic", *delete)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, topic=topic))
    refused(alice, TOPIC_REFUSED, "DELETE on the topic", *delete)
    assert topic in alice.done("topics", "list"), "it is still there"

    broker.grant_now(user_acl("alice", Operation.DELETE, topic=topic))
    assert alice.done(*delete) == f"{topic}: deleted\n"
    assert topic not in alice.done("topics", "list")


# -- records -----------------------------------------------------------------------------------------------------------


def test_producing(broker: SecuredBroker, alice: UserCli, made_topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("hers\n")
    words = ("produce", str(lines), "--topic", made_topic)

    refused(alice, TOPIC_REFUSED, "WRITE on the topic", *words)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, topic=made_topic))
    code, out, errors = alice.run(*words)
    assert (code, out) == (1, "")
    assert errors.splitlines() == [
        "holdfast produce: line 1 was not stored: Broker: Topic authorization failed: this user lacks the permission: "
        "it needs WRITE on the topic",
        f"0 records to {made_topic}, 1 failed",
    ]
    assert records(broker, made_topic) == [b"there"]

    broker.grant_now(user_acl("alice", Operation.WRITE, topic=made_topic))
    assert alice.run(*words) == (0, "", f"1 record to {made_topic}\n")
    assert records(broker, made_topic) == [b"there", b"hers"]


def test_consuming(broker: SecuredBroker, alice: UserCli, made_topic: str, group: str) -> None:
    alone = ("consume", "--topic", made_topic, "--from-beginning", "--max-messages", "1")
    as_member = (*alone, "--group", group)
    needs = "READ on the topic, and with --group on the group"

    for words in (alone, as_member):
        refused(alice, TOPIC_REFUSED, needs, *words)
    broker.grant_now(user_acl("alice", Operation.DESCRIBE, topic=made_topic))
    refused(alice, "Topic authorization failed", needs, *alone)
    refused(alice, GROUP_REFUSED, needs, *as_member)
    broker.grant_now(user_acl("alice", Operation.READ, group=group))
    refused(alice, "Topic authorization failed", needs, *as_member)

    broker.grant_now(user_acl("alice", Operation.READ, topic=made_topic))
    for words in (alone, as_member):
        assert alice.run(*words) == (0, "there\n", "")
