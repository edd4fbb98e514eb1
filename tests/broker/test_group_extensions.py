"""The private APIs, a group's configs and closed connections, over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.coordinator.extensions.join_groups import MAX_MEMBERS
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribedConfig
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, GroupExtensions
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsMember, JoinGroupsRequest
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from tests.broker.group_broker import GroupBroker
from tests.broker.group_members import (
    SESSION_MS,
    WireMember,
    assign_evenly,
    batch_entry,
    described,
    form,
    partitions,
    wait_until_loaded,
)
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

SET, DELETE, APPEND = 0, 1, 2
GROUP_RESOURCE = 32
NONE, INVALID_REQUEST, INVALID_CONFIG, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 0, 42, 40, 27, 25
FROM_GROUP, FROM_DEFAULT = 8, 5


def alter(
    client: WireClient, group: str, *changes: tuple[str, int, str | None], validate: bool = False
) -> tuple[int, str]:
    configs = [IncrementalAlterableConfig(*change) for change in changes]
    resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, group, configs)
    (answer,) = client.ask(IncrementalAlterConfigsRequest([resource], validate), 1).responses
    return answer.error_code, answer.error_message or ""


def configs(client: WireClient, group: str) -> dict[str, DescribedConfig]:
    asked = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group)], include_synonyms=True)
    (answer,) = client.ask(asked, 4).results
    assert answer.error_code == NONE, answer
    return {config.name: config for config in answer.configs}


def extensions(client: WireClient, group: str) -> GroupExtensions:
    found: GroupExtensions | None = (
        client.ask(DescribeGroupsRequest([group], include_extensions=True), 6).groups[0].extensions
    )
    assert found is not None
    return found


def test_every_client_sees_the_private_apis(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        keys = {key.api_key for key in client.ask(ApiVersionsRequest("test", "1"), 3).api_keys}

    assert {10_000, 10_001, 10_002} <= keys


def test_the_configs_of_a_group_are_set_shown_and_kept(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        before = configs(client, "g")
        assert {name: (one.value, one.config_source) for name, one in before.items()} == {
            "target.group.size": ("0", FROM_DEFAULT),
            "standby.takeover.ms": ("-1", FROM_DEFAULT),
        }
        assert alter(client, "g", ("target.group.size", SET, "3"), validate=True) == (NONE, "")
        assert configs(client, "g")["target.group.size"].value == "0"

        assert alter(client, "g", ("target.group.size", SET, "3"), ("standby.takeover.ms", SET, "2000")) == (NONE, "")
        assert alter(client, "g", ("standby.takeover.ms", DELETE, None)) == (NONE, "")
        broker.kill()
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        wait_until_loaded(client)
        after = configs(client, "g")
        assert after["target.group.size"].value == "3"
        assert after["target.group.size"].config_source == FROM_GROUP
        assert [(s.value, s.source) for s in after["target.group.size"].synonyms] == [("3", 8), ("0", 5)]
        assert after["standby.takeover.ms"].value == "-1"
        assert described(client, "g").group_state == "Dead", "a config makes no group"
        resource = AlterConfigsResource(GROUP_RESOURCE, "g", [AlterableConfig("standby.takeover.ms", "9")])
        assert client.ask(AlterConfigsRequest([resource]), 2).responses[0].error_code == NONE
        assert {name: one.value for name, one in configs(client, "g").items()} == {
            "target.group.size": "0",
            "standby.takeover.ms": "9",
        }


@pytest.mark.parametrize(
    ("group", "change", "code", "message"),
    [
        ("g", ("target.group.size", SET, "-1"), INVALID_CONFIG, "Value must be 0 or at least 1"),
        ("g", ("target.group.size", SET, "many"), INVALID_CONFIG, "Not a number of type INT"),
        ("g", ("target.group.size", SET, "4294967296"), INVALID_CONFIG, "at most 2147483647"),
        ("g", ("standby.takeover.ms", SET, "0"), INVALID_CONFIG, "Value must be -1 or at least 1"),
        ("g", ("target.group.sise", SET, "1"), INVALID_CONFIG, "Unknown group config name: target.group.sise"),
        ("g", ("target.group.size", APPEND, "1"), INVALID_CONFIG, "its type is not LIST"),
        ("g", ("target.group.size", SET, None), INVALID_REQUEST, "Null value not supported"),
        ("", ("target.group.size", SET, "1"), INVALID_REQUEST, "Default group resources are not allowed."),
    ],
)
def test_configs_that_make_no_sense(
    tmp_path: Path, group: str, change: tuple[str, int, str | None], code: int, message: str
) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        found, reported = alter(client, group, change)
        assert found == code
        assert message in reported


def test_many_members_join_in_one_request(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        request = JoinGroupsRequest("g", SESSION_MS, SESSION_MS, "consumer", [batch_entry(str(n)) for n in range(100)])
        results = client.ask(request, 0).results

        assert {(result.error_code, result.generation_id) for result in results} == {(NONE, 1)}
        (leader,) = [result for result in results if result.members]
        assert len(leader.members) == 100
        assert leader.leader == leader.member_id
        assert [result.member_id.rsplit("-", 5)[0] for result in results] == [str(n) for n in range(100)]
        assert not client.ask(JoinGroupsRequest("g", SESSION_MS, SESSION_MS, "consumer", []), 0).results


def test_registered_members_that_join_in_one_request_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Their answers go out together, so none of them can come again for the rebalance that the last one begins."""
    with (
        GroupBroker(tmp_path) as broker,
        WireClient(broker.address) as client,
        WireMember(broker.address, "g", "1") as one,
    ):
        client.create_topic("orders", partitions=2)
        form(one)
        assign_evenly(one)
        client.ask(AddMembersToGroupRequest("g", ["a", "b"]), 0)

        client.send(JoinGroupsRequest("g", SESSION_MS, SESSION_MS, "consumer", [batch_entry("a"), batch_entry("b")]), 0)
        eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance began")
        one.send_join()

        results = client.receive(JOIN_GROUPS, 0)[1].results
        assert [(result.error_code, result.generation_id) for result in results] == [(NONE, 2)] * 2
        assert {member.group_instance_id for member in one.joined().members} == {"1", "a", "b"}


def test_a_request_with_a_town_of_members_closes_its_connection(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        town = [JoinGroupsMember("", "x", [])] * (MAX_MEMBERS + 1)
        client.send(JoinGroupsRequest("g", SESSION_MS, SESSION_MS, "consumer", town), 0)

        assert client.is_closed_by_broker()


def test_a_standby_takes_over_when_a_connection_closes(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        client.create_topic("orders", partitions=2)
        assert alter(client, "g", ("target.group.size", SET, "2"), ("standby.takeover.ms", SET, "50")) == (NONE, "")
        with (
            WireMember(broker.address, "g", "a") as leader,
            WireMember(broker.address, "g", "b") as lost,
            WireMember(broker.address, "g", "s") as standby,
        ):
            form(leader, lost)
            assign_evenly(leader, lost)
            standby.join()
            assert standby.sync().assignment == EMPTY_ASSIGNMENT
            assert standby.heartbeat() == NONE

            lost.socket.close()

            eventually(lambda: standby.heartbeat() == REBALANCE_IN_PROGRESS, "the standby is asked to rejoin")
            standby.join()
            assert standby.sync().assignment == partitions(1)
            assert leader.heartbeat() == NONE
            assert extensions(client, "g").assignment_epoch == leader.generation * 1_000_000 + 1
            with lost.again(broker.address) as back:
                assert back.heartbeat() == UNKNOWN_MEMBER_ID
                assert back.commit(1) == UNKNOWN_MEMBER_ID


def test_a_registered_member_that_disconnects_from_an_empty_group_is_expected_again(tmp_path: Path) -> None:
    with GroupBroker(tmp_path) as broker, WireClient(broker.address) as client:
        client.ask(AddMembersToGroupRequest("g", ["a", "b"]), 0)
        with WireMember(broker.address, "g", "a") as early:
            early.send_join()
            eventually(lambda: [e.arrived for e in extensions(client, "g").expected] == [True, False], "a is there")
        eventually(lambda: [e.arrived for e in extensions(client, "g").expected] == [False, False], "a is gone")

        with WireMember(broker.address, "g", "a") as again, WireMember(broker.address, "g", "b") as last:
            again.send_join()
            last.send_join()
            assert again.joined().generation_id == last.joined().generation_id
