"""`holdfast groups add-members`, `cancel-registration`, `configure` on a broker, and what `describe`, `history` and
`watch` show of them."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import Cli
from tests.cli.processes import ended, line_of, lines_until, running
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture
def ours(quick_holdfast: HoldfastBroker, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(quick_holdfast.bootstrap, capsys)


def test_members_are_registered_shown_and_cancelled(ours: Cli, group: str) -> None:
    add = ("groups", "add-members", "--group", group, "--instance-ids")
    assert ours.table(*add, "a,b") == [
        {"INSTANCE-ID": "a", "RESULT": "registered"},
        {"INSTANCE-ID": "b", "RESULT": "registered"},
    ]
    assert [one["outcome"] for one in ours.json(*add, "a,c")] == ["renewed", "registered"]

    (reported,) = ours.json("groups", "describe", "--group", group, "--state")
    assert [(one["instance_id"], one["arrived"]) for one in reported["expected"]] == [
        ("a", False),
        ("b", False),
        ("c", False),
    ]
    assert (reported["state"], reported["standbys"], reported["member_count"]) == ("Empty", 0, 0)
    _, out, _ = ours.run("groups", "describe", "--group", group, "--members")
    assert [(row.split()[2], row.split()[-1]) for row in out.splitlines()[1:]] == [(one, "expected") for one in "abc"]

    cancel = ("groups", "cancel-registration", "--group", group)
    code, out, errors = ours.run(*cancel, "--instance-ids", "a,x")
    assert (code, errors) == (1, "holdfast groups cancel-registration: 1 of 2 registrations were not cancelled\n")
    assert [line.split(maxsplit=1) for line in out.splitlines()[1:]] == [
        ["a", "cancelled"],
        ["x", "not registered (UNKNOWN_MEMBER_ID)"],
    ]
    assert [row["INSTANCE-ID"] for row in ours.table(*cancel)] == ["b", "c"]
    history = ours.done("groups", "history", "--group", group)
    assert "members registered" in history and " a,b " in history
    assert "registration cancelled" in history and " b,c " in history


def test_a_group_that_is_not_there_has_nothing_to_cancel(ours: Cli, group: str) -> None:
    assert "there is no such group" in ours.refused("groups", "cancel-registration", "--group", group)


def test_a_standby_is_shown_and_its_takeover_is_recorded(
    quick_holdfast: HoldfastBroker, ours: Cli, topic: str, group: str
) -> None:
    make_topic(quick_holdfast, topic, 1)
    configure = ("groups", "configure", "--group", group)
    assert ours.table(*configure, "--target-size", "1") == [{"CONFIG": "target.group.size", "NOW": "1"}]
    assert ours.table(*configure) == [
        {"CONFIG": "standby.takeover.ms", "VALUE": "-1", "SOURCE": "default"},
        {"CONFIG": "target.group.size", "VALUE": "1", "SOURCE": "set"},
    ]
    words = ("groups", "watch", "--group", group, "--interval", "0.2", "--json")
    worker = Watched(quick_holdfast, group, group_instance_id="node-0").subscribe(topic)
    spare = Watched(quick_holdfast, group, group_instance_id="spare").subscribe(topic)
    with watching(spare):
        with watching(worker), running(*words, "--bootstrap-server", ours.bootstrap) as process:
            line_of(process)
            poll_until(lambda: worker.partitions, "a member", worker)
            poll_until(lambda: standbys(ours, group) == 1, "a standby", worker, spare)
            changes = [json.loads(line) for line in lines_until(process, b'"role":"standby"')]
            gone = worker.consumer.memberid()
            worker.consumer.close()
            ours.done("groups", "remove-members", "--group", group, "--instance-ids", "node-0")
            poll_until(lambda: spare.partitions, "the standby has taken over", spare)
            swapped = [json.loads(line) for line in lines_until(process, b'"role":"active"')]
            assert ended(process, signal.SIGINT)[0] == 130
        assert [one["member"] for one in changes if one["change"] == "role"] == ["spare"]
        (reported,) = [one["event"] for one in swapped if one.get("kind") == "standby took over"]
        assert (reported["instance_id"], reported["previous_member_id"]) == ("spare", gone)
        members = {row["INSTANCE-ID"]: row for row in ours.table("groups", "describe", "--group", group, "--members")}
        assert (list(members), members["spare"]["ROLE"]) == (["spare"], "leader")
        swap = next(
            line for line in ours.done("groups", "history", "--group", group).splitlines() if "took over" in line
        )
        assert f"spare for {gone}" in swap and f" {reported['epoch']} " in swap


def standbys(cli: Cli, group: str) -> int:
    (reported,) = cli.json("groups", "describe", "--group", group, "--state")
    count: int = reported["standbys"]
    return count


@pytest.mark.real
@pytest.mark.timeout(300)
def test_apache_kafka_cannot_and_the_sentence_names_what_it_lacks(
    quick_kafka: Server, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(quick_kafka.bootstrap, capsys)
    lacking = f", which the broker at {quick_kafka.bootstrap} does not have"
    commands = {
        ("add-members", "--instance-ids", "a"): (
            "registering members needs Holdfast's AddMembersToGroup (API key 10000)"
        ),
        ("cancel-registration",): "cancelling registrations needs Holdfast's CancelRegistration (API key 10001)",
        ("configure", "--target-size", "3"): "the group config 'target.group.size' needs Holdfast's hot standbys",
    }
    for (command, *words), feature in commands.items():
        sentence = cli.refused("groups", command, "--group", group, *words)
        assert sentence == f"holdfast groups {command}: {feature}{lacking}"
    own = cli.json("groups", "configure", "--group", group)["configs"]
    assert "consumer.session.timeout.ms" in {one["name"] for one in own}
