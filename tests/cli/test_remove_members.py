"""`holdfast groups remove-members`: members are removed, with a result for each, and a sentence where it cannot be."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.main import main
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from holdfast.wire.apis.find_coordinator import FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.metadata import MetadataResponse, MetadataResponseBroker
from tests.cli.conftest import Cli
from tests.client_compat.servers import Server
from tests.groups.topics import ledger, make_topic
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker
from tests.unit.client.scripted import Peer, ScriptedServer


def test_members_are_removed_with_a_result_each(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    static = Watched(server, group, group_instance_id="node-1", session_timeout_ms=60_000).subscribe(topic)
    with watching(static):
        poll_until(lambda: static.partitions, "a member", static)
        static.consumer.close()

        code, out, errors = cli.run(
            *("groups", "remove-members", "--group-id", group, "--group-instance-ids", "node-1,node-9"),
            *("--member-ids", "nobody", "--reason", "the pod is gone"),
        )
        lines = [line.split(maxsplit=2) for line in out.splitlines()]
        assert lines == [
            ["INSTANCE-ID", "CONSUMER-ID", "RESULT"],
            ["node-1", "-", "removed"],
            ["node-9", "-", "not in the group (UNKNOWN_MEMBER_ID)"],
            ["-", "nobody", "not in the group (UNKNOWN_MEMBER_ID)"],
        ]
        assert (code, errors) == (1, "holdfast groups remove-members: 2 of 3 members were not removed\n")
        assert cli.json("groups", "describe", "--group", group, "--members")[0]["members"] == []
        if isinstance(server, HoldfastBroker):
            assert "the pod is gone" in [event.get("reason") for event in ledger(server, group)]


def test_the_members_of_one_application_are_removed_by_prefix(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    three = [
        Watched(server, group, group_instance_id=name, session_timeout_ms=60_000).subscribe(topic)
        for name in ("eu-1", "eu-2", "us-1")
    ]
    with watching(*three):
        poll_until(evenly_assigned(4, *three), "three members", *three)
        for one in three:
            one.consumer.close()
        removed = cli.json("groups", "remove-members", "--group", group, "--instance-prefix", "eu-")
        assert sorted(one["instance_id"] for one in removed) == ["eu-1", "eu-2"]
        assert {(one["ok"], one["error"], one["message"]) for one in removed} == {(True, None, None)}
        (left,) = cli.json("groups", "describe", "--group", group, "--members")[0]["members"]
        assert left["instance_id"] == "us-1"

        sentence = cli.refused("groups", "remove-members", "--group", group, "--instance-prefix", "eu-")
        assert sentence.endswith(f"group {group!r} has no static member whose instance id begins with 'eu-'")


def test_a_prefix_ends_where_a_part_of_the_instance_id_ends(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    three = [
        Watched(server, group, group_instance_id=name, session_timeout_ms=60_000).subscribe(topic)
        for name in ("app-1", "app-1-0", "app-10")
    ]
    with watching(*three):
        poll_until(evenly_assigned(4, *three), "three members", *three)
        for one in three:
            one.consumer.close()
        removed = cli.json("groups", "remove-members", "--group", group, "--instance-prefix", "app-1")
        assert sorted(one["instance_id"] for one in removed) == ["app-1", "app-1-0"]

        sentence = cli.refused("groups", "remove-members", "--group", group, "--instance-prefix", "app-1")
        assert sentence.endswith(
            f"group {group!r} has no static member whose instance id begins with 'app-1' and ends there or goes on "
            "after a separator ('app-10' does not); see --instance-ids"
        )
        removed = cli.json("groups", "remove-members", "--group", group, "--instance-prefix", "app-")
        assert [one["instance_id"] for one in removed] == ["app-10"], "the control"


def test_a_group_that_is_not_there(cli: Cli, group: str) -> None:
    sentence = cli.refused("groups", "remove-members", "--group", group, "--instance-ids", "a")
    assert sentence == f"holdfast groups remove-members: there is no group {group!r}"


def test_a_broker_before_kafka_2_4_cannot_and_the_sentence_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def old_broker(peer: Peer) -> None:
        host, port = peer.socket.getsockname()
        peer.answer_api_versions({LEAVE_GROUP.key: (0, 2)})
        answers = {
            "Metadata": MetadataResponse(brokers=[MetadataResponseBroker(1, host, port)]),
            "FindCoordinator": FindCoordinatorResponse(coordinators=[FoundCoordinator("g", 1, host, port, 0, None)]),
            "DescribeGroups": DescribeGroupsResponse(groups=[DescribedGroup(0, group_id="g", group_state="Empty")]),
        }
        while True:
            request = peer.request()
            peer.answer(request, answers[request.api.name])

    with ScriptedServer(old_broker) as server:
        bootstrap = f"{server.address.host}:{server.address.port}"
        words = ["--group", "g", "--instance-ids", "a", "--bootstrap-server", bootstrap]
        code = main(["groups", "remove-members", *words])
        said = capsys.readouterr()
        assert main(["groups", "describe", "--group", "g", "--bootstrap-server", bootstrap, "--state", "--json"]) == 0
        control = json.loads(capsys.readouterr().out)
    assert (code, said.out) == (1, "")
    assert "members can be removed by brokers from Kafka 2.4 on; this one has LeaveGroup up to v2" in said.err
    assert control[0]["state"] == "Empty", "the same broker answers what it knows"
