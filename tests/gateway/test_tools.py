"""Tools through the gateway: Kafka's own and Holdfast's show and change the same groups, on both sides.

A group comes from Kafka's own coordinator with its offsets, goes back there, and is never on both sides.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from holdfast import Admin
from holdfast.cli.main import main
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.error_codes import ErrorCode
from tests.broker.wire_client import PATIENCE_S, WireClient
from tests.gateway.committing_members import committed, created_topic, unique
from tests.gateway.test_survival import await_commit_at, commit_at
from tests.groups.test_java_tools import GROUPS, table
from tests.support.eventually import eventually
from tests.support.gateway_process import GatewayProcess
from tests.support.java_tools import JavaTools
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIGS = "kafka.admin.ConfigCommand"
MEMBER_HOST = "127.0.0.7"
"""Neither the gateway's nor Kafka's."""
QUICK = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def gateway(kafka_cluster: KafkaCluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(kafka_cluster, QUICK) as process:
        yield process


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    with JavaTools() as running:
        yield running


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    """With two partitions."""
    return created_topic(gateway.bootstrap, unique("t"), 2)


@pytest.fixture
def group() -> str:
    return unique("g")


class Member(WireClient):
    """A member of a group, alone in it, whose host is `MEMBER_HOST`."""

    def __init__(self, address: tuple[str, int], group: str, assignment: bytes) -> None:
        self.socket = socket.create_connection(address, PATIENCE_S, source_address=(MEMBER_HOST, 0))
        self._group = group
        protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")]
        request = JoinGroupRequest(group, 30_000, 30_000, "", None, "consumer", protocols)
        self.id: str = eventually(lambda: self.ask(request, 5).member_id, "it has a member id")
        request.member_id = self.id
        joined = self.ask(request, 5)
        assert joined.error_code == ErrorCode.NONE
        assignments = [SyncGroupRequestAssignment(self.id, assignment)]
        synced = self.ask(SyncGroupRequest(group, joined.generation_id, self.id, assignments=assignments), 3)
        assert synced.error_code == ErrorCode.NONE

    def leave(self) -> None:
        left = self.ask(LeaveGroupRequest(self._group, members=[MemberIdentity(self.id)]), 3)
        assert left.error_code == ErrorCode.NONE


def assignment_of(topic: str, partitions: int) -> bytes:
    """ConsumerProtocolAssignment v0."""
    name = topic.encode()
    numbers = b"".join(number.to_bytes(4) for number in range(partitions))
    head = (0).to_bytes(2) + (1).to_bytes(4) + len(name).to_bytes(2) + name
    return head + partitions.to_bytes(4) + numbers + (0xFFFFFFFF).to_bytes(4)


def holdfast(gateway: GatewayProcess, *arguments: str) -> int:
    return main([*arguments, "--bootstrap-server", gateway.bootstrap])


# -- Kafka's tools -----------------------------------------------------------------------------------------------------


def test_the_groups_tool_of_kafka_shows_and_changes_groups(
    gateway: GatewayProcess, tools: JavaTools, group: str, topic: str
) -> None:
    def run(*arguments: str) -> str:
        done = tools.run(GROUPS, "--bootstrap-server", gateway.bootstrap, *arguments)
        assert done.code == 0, done.printed
        return done.printed

    # given a group with offsets and a member
    with WireClient(gateway.address_of(1)) as client:
        await_commit_at(client, group, topic, 7)
    with Member(gateway.address_of(2), group, assignment_of(topic, 2)) as member:
        # then the tool shows both, and where the member is
        assert group in run("--list").split()
        (described,) = table(run("--describe", "--group", group, "--members"))
        assert (described["CONSUMER-ID"], described["HOST"]) == (member.id, f"/{MEMBER_HOST}")
        (state,) = table(run("--describe", "--group", group, "--state"))
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        rows = table(run("--describe", "--group", group))
        assert [(row["PARTITION"], row["CURRENT-OFFSET"]) for row in rows] == [("0", "7"), ("1", "7")]
        assert "not empty" in run("--delete", "--group", group)
        member.leave()

    # when nobody is in it
    run("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert committed(gateway.bootstrap, group, topic, 2) == {0: 0, 1: 0}
    assert "successful" in run("--delete", "--group", group)
    assert group not in run("--list").split()


def test_the_configs_tool_of_kafka_changes_a_group(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, tools: JavaTools, group: str
) -> None:
    def run(*arguments: str) -> str:
        server = ["--bootstrap-server", gateway.bootstrap, "--entity-type", "groups", "--entity-name", group]
        done = tools.run(CONFIGS, *server, *arguments)
        assert done.code == 0, done.printed
        return done.printed

    run("--alter", "--add-config", "target.group.size=3")

    assert "target.group.size=3" in run("--describe")
    with Admin({"bootstrap.servers": gateway.bootstrap}) as admin:
        assert admin.group_config(group)["target.group.size"].value == "3"
    # and topics are still Kafka's
    done = tools.run(
        CONFIGS, "--bootstrap-server", gateway.bootstrap, "--entity-type", "topics", "--describe", "--entity-name",
        "__group_ledger",
    )  # fmt: skip
    assert "Dynamic configs for topic __group_ledger" in done.printed


# -- Holdfast's tools --------------------------------------------------------------------------------------------------


def test_groups_are_configured_and_their_members_registered(
    gateway: GatewayProcess, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert holdfast(gateway, "groups", "configure", "--group", group, "--target-size", "2") == 0
    assert holdfast(gateway, "groups", "add-members", "--group", group, "--instance-ids", "one,two") == 0
    capsys.readouterr()

    assert holdfast(gateway, "groups", "history", "--group", group, "--json") == 0
    kinds = [event["kind"] for event in json.loads(capsys.readouterr().out)]
    assert kinds == ["group configured", "members registered"]
    with Admin({"bootstrap.servers": gateway.bootstrap}) as admin:
        described = admin.describe_group(group).extensions
    assert described is not None
    assert (described.target_size, [one.instance_id for one in described.expected]) == (2, ["one", "two"])


# -- adoption and release ----------------------------------------------------------------------------------------------


def commit_directly(cluster: KafkaCluster, group: str, topic: str, offset: int) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


def error_of_direct_member(cluster: KafkaCluster, group: str, topic: str) -> int:
    with Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group}) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        assert error is not None
        return error.code()


def test_a_group_is_adopted_held_and_released(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, group: str, topic: str
) -> None:
    # given a group in Kafka, which the gateway lists
    commit_directly(kafka_cluster, group, topic, 5)
    with Admin({"bootstrap.servers": gateway.bootstrap}) as admin:
        assert group in [one.group_id for one in admin.list_groups()]
        assert admin.describe_group(group).state == "Empty"
    commit_directly(kafka_cluster, group, topic, 6)  # looking at it does not move it

    # when it is used through the gateway
    with WireClient(gateway.address_of(1)) as client:
        assert committed(gateway.bootstrap, group, topic, 2) == {0: 6, 1: OFFSET_INVALID}
        await_commit_at(client, group, topic, 7)

    # then Kafka refuses direct clients
    with pytest.raises(KafkaException) as refused:
        commit_directly(kafka_cluster, group, topic, 1)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert error_of_direct_member(kafka_cluster, group, topic) == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert committed(gateway.bootstrap, group, topic, 2) == {0: 7, 1: 7}

    # when it is released, then Kafka has it again, with the offsets
    assert holdfast(gateway, "gateway", "release", group) == 0
    eventually(lambda: committed(kafka_cluster.bootstrap, group, topic, 2) == {0: 7, 1: 7}, "Kafka has the offsets")
    commit_directly(kafka_cluster, group, topic, 8)

    # and it can come back
    assert committed(gateway.bootstrap, group, topic, 2) == {0: 8, 1: 7}


@pytest.mark.parametrize("first", ["configure", "add-members"])
def test_a_group_has_its_offsets_whatever_is_asked_of_it_first(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, group: str, topic: str, first: str
) -> None:
    commit_directly(kafka_cluster, group, topic, 5)

    arguments = {"configure": ["--target-size", "2"], "add-members": ["--instance-ids", "one"]}
    assert holdfast(gateway, "groups", first, "--group", group, *arguments[first]) == 0

    assert committed(gateway.bootstrap, group, topic, 2) == {0: 5, 1: OFFSET_INVALID}


def test_a_group_with_members_in_kafka_is_refused_until_they_stop(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, group: str, topic: str
) -> None:
    settings = {"bootstrap.servers": kafka_cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    with WireClient(gateway.address_of(1)) as client, Consumer(settings) as consumer:
        consumer.subscribe([topic])

        def is_member() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(is_member, "the direct consumer is a member")
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

        assert commit_at(client, group, topic, 9) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert group in gateway.log_text()
        consumer.close()

        eventually(lambda: committed(gateway.bootstrap, group, topic, 2)[0] == 4, "the gateway has its offset")
        await_commit_at(client, group, topic, 9)
    assert committed(gateway.bootstrap, group, topic, 2) == {0: 9, 1: 9}
