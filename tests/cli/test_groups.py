"""`holdfast groups list`, `describe`, `delete`, on both servers."""

from __future__ import annotations

import pytest

from holdfast.client.admin import Admin
from tests.cli.conftest import Cli
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic, produce
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker


def test_a_group_at_work_is_seen_in_every_table(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    first = Watched(server, group, group_instance_id="node-1", client_id="one").subscribe(topic)
    second = Watched(server, group, client_id="two").subscribe(topic)
    with watching(first, second):
        poll_until(evenly_assigned(4, first, second), "both have two", first, second)
        poll_until(lambda: len(first.records + second.records) == 40, "all records", first, second)
        first.consumer.commit(asynchronous=False)
        mine, other = first.partitions[0], second.partitions[0]
        produce(server, topic, 5, first=10)

        (listed,) = [row for row in cli.table("groups", "list", "--states", "stable") if row["GROUP"] == group]
        assert (listed["STATE"], listed["TYPE"].lower(), listed["PROTOCOL-TYPE"]) == ("Stable", "classic", "consumer")
        assert group not in cli.done("groups", "list", "--states", "Empty")

        rows = {int(row["PARTITION"]): row for row in cli.table("groups", "describe", "--group", group)}
        assert list(rows[mine].items()) == [
            ("GROUP", group),
            ("TOPIC", topic),
            ("PARTITION", str(mine)),
            ("CURRENT-OFFSET", "10"),
            ("LOG-END-OFFSET", "15"),
            ("LAG", "5"),
            ("CONSUMER-ID", first.consumer.memberid()),
            ("HOST", "/127.0.0.1"),
            ("CLIENT-ID", "one"),
            ("INSTANCE-ID", "node-1"),
        ]
        assert (rows[other]["CLIENT-ID"], rows[other]["INSTANCE-ID"]) == ("two", "-")

        members = {row["CLIENT-ID"]: row for row in cli.table("groups", "describe", "--group", group, "--members")}
        assert members["one"] == {
            "GROUP": group,
            "CONSUMER-ID": first.consumer.memberid(),
            "INSTANCE-ID": "node-1",
            "HOST": "/127.0.0.1",
            "CLIENT-ID": "one",
            "#PARTITIONS": "2",
            "ROLE": members["one"]["ROLE"],
        }
        its_roles = ["active", "leader"] if isinstance(server, HoldfastBroker) else ["-", "-"]
        assert sorted(row["ROLE"] for row in members.values()) == its_roles
        verbose = cli.table("groups", "describe", "--group", group, "--members", "--verbose")
        has = {row["CLIENT-ID"]: row["ASSIGNMENT"] for row in verbose}
        assert has["one"] == f"{topic}({','.join(map(str, first.partitions))})"


def test_the_state_has_the_latest_rebalance_and_its_cause_where_there_is_a_ledger(
    server: Server, cli: Cli, topic: str, group: str
) -> None:
    make_topic(server, topic)
    one = Watched(server, group, group_instance_id="node-1").subscribe(topic)
    with watching(one):
        poll_until(lambda: len(one.partitions) == 4, "a member", one)
        header, row = cli.done("groups", "describe", "--group", group, "--state").splitlines()
        assert header.split() == [
            *("GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE"),
            *("#MEMBERS", "GENERATION", "EPOCH", "STANDBYS", "EXPECTED", "TARGET", "LAST-REBALANCE", "CAUSE"),
        ]
        name, coordinator, node, strategy, state, count, *history = row.split(maxsplit=12)
        assert (name, coordinator, strategy, state, count) == (group, server.bootstrap, "range", "Stable", "1")
        assert node == "(1)"
        reported = cli.json("groups", "describe", "--group", group, "--state")[0]
        if isinstance(server, HoldfastBroker):
            generation = one.consumer.generation()
            assert history[:5] == [str(generation), str(generation * 1_000_000), "0", "0", "-"]
            assert history[6] == "a new member joined (node-1)"
            assert (reported["generation"], reported["epoch"]) == (generation, generation * 1_000_000)
            assert (reported["leader"], reported["settled"]) == (one.consumer.memberid(), True)
            assert reported["last_rebalance"]["cause_code"] == "member_joined"
            assert set(reported["last_rebalance"]) == {
                "at_ms",
                "cause",
                "cause_code",
                "member",
                "reason",
                "unassigned_ms",
            }
        else:
            assert history == ["-"] * 7
            assert (reported["generation"], reported["epoch"], reported["last_rebalance"]) == (None, None, None)


WHO = {"member_id", "instance_id", "client_id", "client_host"}


def test_json_has_the_documented_fields(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group, group_instance_id="node-1").subscribe(topic)
    with watching(one):
        poll_until(lambda: len(one.partitions) == 4, "a member", one)
        (listed,) = [row for row in cli.json("groups", "list") if row["group_id"] == group]
        assert set(listed) == {"group_id", "state", "type", "protocol_type"}

        (offsets,) = cli.json("groups", "describe", "--group", group)
        base = {"group_id", "state", "protocol_type", "protocol", "coordinator", "member_count"}
        assert set(offsets) == base | {"offsets"}
        assert set(offsets["coordinator"]) == {"node_id", "host", "port"}
        assert (offsets["group_id"], offsets["state"], offsets["member_count"]) == (group, "Stable", 1)
        first = offsets["offsets"][0]
        assert set(first) == {"topic", "partition", "current_offset", "log_end_offset", "lag", "owners"}
        assert [set(owner) for owner in first["owners"]] == [WHO]

        (members,) = cli.json("groups", "describe", "--group", group, "--members")
        (member,) = members["members"]
        assert set(members) == base | {"members", "expected"}
        assert set(member) == WHO | {"role", "topics", "partitions"}
        assert (member["instance_id"], member["partitions"]) == ("node-1", {topic: [0, 1, 2, 3]})


def test_a_member_without_partitions_and_a_partition_without_a_member_have_a_row(
    server: Server, cli: Cli, topic: str, group: str
) -> None:
    make_topic(server, topic, 1)
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        admin.alter_offsets(group, {(topic, 0): 0})
    code, out, errors = cli.run("groups", "describe", "--group", group)
    assert (code, out.splitlines()[1].split()) == (0, [group, topic, "0", "0", "0", "0", "-", "-", "-", "-"])
    assert errors == f"holdfast groups describe: group {group!r} has no members; its state is Empty\n"

    first, second = Watched(server, group).subscribe(topic), Watched(server, group).subscribe(topic)
    with watching(first, second):
        poll_until(
            lambda: all(one.callbacks for one in (first, second)) and len(first.partitions + second.partitions) == 1,
            "one of two has the only partition",
            first,
            second,
        )
        idle = first if not first.partitions else second
        *_, last = cli.table("groups", "describe", "--group", group)
        assert last["CONSUMER-ID"] == idle.consumer.memberid()
        assert (last["TOPIC"], last["PARTITION"], last["LAG"]) == ("-", "-", "-")


def test_several_groups_and_one_that_is_not_there(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic, 1)
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        for name in (group, f"{group}-2"):
            admin.alter_offsets(name, {(topic, 0): 0})
    names = ["--group", group, "--group", f"{group}-2", "--group", f"{group}-missing"]
    code, out, errors = cli.run("groups", "describe", *names, "--state")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (1, ["GROUP", group, f"{group}-2"])
    assert errors == f"holdfast groups describe: there is no group '{group}-missing'\n"
    everything = cli.json("groups", "describe", "--all-groups", "--state")
    assert {group, f"{group}-2"} <= {one["group_id"] for one in everything}


def test_groups_are_deleted_or_it_is_said_why_not(server: Server, cli: Cli, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group).subscribe(topic)
    with watching(one):
        poll_until(lambda: len(one.partitions) == 4, "a member", one)
        sentence = cli.refused("groups", "delete", "--group", group)
        assert "NON_EMPTY_GROUP: it has members: stop them, or remove them, first" in sentence
    code, out, errors = cli.run("groups", "delete", "--group", group, "--group", f"{group}-missing")
    assert (code, out) == (1, f"{group}: deleted\n")
    assert "there is no such group" in errors
    assert group not in cli.done("groups", "list")
    code, out, errors = cli.run("groups", "delete", "--group", group, "--json")
    assert (code, errors) == (1, "")
    assert '"error": "GROUP_ID_NOT_FOUND"' in out


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_group_of_the_newer_protocol_is_not_reported_missing(
    quick_kafka: Server, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Consumer

    make_topic(quick_kafka, topic)
    cli = Cli(quick_kafka.bootstrap, capsys)
    consumer = Consumer({"bootstrap.servers": quick_kafka.bootstrap, "group.id": group, "group.protocol": "consumer"})
    try:
        consumer.subscribe([topic])
        for _ in range(600):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        assert consumer.assignment()
        assert "is of type consumer" in cli.refused("groups", "describe", "--group", group)
    finally:
        consumer.close()
