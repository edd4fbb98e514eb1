"""`group.bootstrap.servers`: the group is on one server, and the topics and their records on another.

The records are on Holdfast or Apache Kafka, the groups on a Holdfast that has the topic without any record, because it
refuses offsets of topics that it does not have.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from holdfast import Admin, Consumer, Member, Pool
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, RequestTimedOut
from tests.broker.secured_broker import PASSWORDS, SecuredBroker
from tests.client_compat.servers import Server
from tests.groups.topics import await_committed, committed, ledger, make_topic, produce
from tests.holdfast_client.consumers import (
    QUICK,
    Watched,
    evenly_assigned,
    grow_topic,
    poll_until,
    watching,
)
from tests.support import quick_brokers
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

PATIENCE_S = 60
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def groups() -> Iterator[HoldfastBroker]:
    """The server of the groups."""
    with HoldfastBroker(quick_brokers.QUICK) as broker:
        yield broker


@pytest.fixture
def shared_topic(server: Server, groups: HoldfastBroker, topic: str) -> str:
    """With ten records in each of its four partitions, on `server` only."""
    make_topic(groups, topic)
    make_topic(server, topic)
    produce(server, topic, 10)
    return topic


def group_ids(server: Server) -> set[str]:
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        return {one.group_id for one in admin.list_groups()}


# -- consumers ---------------------------------------------------------------------------------------------------------


def test_a_consumer_joins_and_commits_at_one_server_and_reads_from_the_other(
    server: Server, groups: HoldfastBroker, shared_topic: str, group: str
) -> None:
    # given two consumers that read everything
    split = {"group_bootstrap_servers": groups.bootstrap}
    first = Watched(server, group, **split).subscribe(shared_topic)
    second = Watched(server, group, **split).subscribe(shared_topic)
    with watching(first, second):
        poll_until(evenly_assigned(4, first, second), "both have two", first, second)
        poll_until(lambda: len(set(first.records + second.records)) == 40, "all records", first, second)

        # then Holdfast's extensions are those of the group's server
        assert first.consumer.assignment_epoch is not None

        # when they commit
        for one in (first, second):
            one.consumer.commit(asynchronous=False)

        # then the offsets and the members are on the server of the groups
        assert committed(groups, group, shared_topic) == dict.fromkeys(range(4), 10)
        assert {one.offset for one in first.consumer.committed(first.consumer.assignment())} == {10}
        assert first.consumer.get_watermark_offsets(first.consumer.assignment()[0]) == (0, 10)
        with Admin({"bootstrap.servers": groups.bootstrap}) as admin:
            members = {one.member_id for one in admin.describe_group(group).members}
        assert members == {first.consumer.memberid(), second.consumer.memberid()}

        # and the other server has never heard of the group
        assert group not in group_ids(server)
        assert committed(server, group, shared_topic) == {}

    # when another consumer takes over, then it continues at the committed offsets
    produce(server, shared_topic, 2, first=10)
    third = Watched(server, group, **split).subscribe(shared_topic)
    with watching(third):
        poll_until(lambda: len(third.records) == 8, "the new records", third)
        assert {offset for _, offset in third.records} == {10, 11}


def test_control_without_the_setting_the_group_is_where_the_records_are(
    server: Server, groups: HoldfastBroker, shared_topic: str, group: str
) -> None:
    one = Watched(server, group).subscribe(shared_topic)
    with watching(one):
        poll_until(lambda: len(one.records) == 40, "all records", one)
        one.consumer.commit(asynchronous=False)

        assert committed(server, group, shared_topic) == dict.fromkeys(range(4), 10)
        assert group in group_ids(server)
        assert group not in group_ids(groups)


def test_the_topics_are_those_of_the_records(
    server: Server, groups: HoldfastBroker, shared_topic: str, group: str
) -> None:
    """A pattern, and the leader's check for new partitions: the other server has neither the topic nor the
    partitions."""
    quick = {"metadata_max_age_ms": 100, "metadata_rebalance_min_interval_ms": 0, "enable_auto_commit": False}
    one = Watched(server, group, group_bootstrap_servers=groups.bootstrap, **quick).subscribe(f"^{shared_topic}")
    with watching(one):
        poll_until(lambda: one.partitions == [0, 1, 2, 3], "the first partitions", one)

        grow_topic(server, shared_topic, 6)
        poll_until(lambda: one.partitions == [0, 1, 2, 3, 4, 5], "the new partitions", one)

        make_topic(server, f"{shared_topic}-more", 1)
        poll_until(lambda: len(one.consumer.assignment()) == 7, "the new topic", one)


def test_a_group_outlives_the_brokers_of_its_records(groups: HoldfastBroker, topic: str, group: str) -> None:
    """Neither the heartbeats nor the commits wait for them."""
    session_ms = 2_000
    settings = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 100, "metadata_max_age_ms": 100}
    make_topic(groups, topic)
    with HoldfastBroker(quick_brokers.QUICK) as records:
        make_topic(records, topic)
        produce(records, topic, 10)
        one = Watched(records, group, group_bootstrap_servers=groups.bootstrap, **settings)
        with watching(one):
            one.subscribe(topic)
            poll_until(lambda: len(one.records) == 40, "all records", one)
            member_id, generation = one.consumer.memberid(), one.consumer.generation()

            # when they do not answer for longer than a session lasts
            records.suspend()
            end = time.monotonic() + 3 * session_ms / 1000
            while time.monotonic() < end:
                one.poll()
            one.consumer.commit(asynchronous=False)
            records.resume()

            # then the member is still there, and continues
            produce(records, topic, 1, first=10)
            poll_until(lambda: len(one.records) == 44, "the new records", one)
            assert (one.consumer.memberid(), one.consumer.generation()) == (member_id, generation)
            one.consumer.commit(asynchronous=False)
            await_committed(groups, group, topic, 11)


def test_a_consumer_waits_for_the_server_of_its_group(server: Server, topic: str, group: str) -> None:
    """As for the broker, if both are one: no error, and no record twice."""
    with HoldfastBroker(quick_brokers.QUICK) as groups:
        make_topic(groups, topic)
        make_topic(server, topic)
        produce(server, topic, 10)
        one = Watched(server, group, group_bootstrap_servers=groups.bootstrap, reconnect_backoff_max_ms=300)
        with watching(one):
            one.subscribe(topic)
            poll_until(lambda: len(one.records) == 40, "all records", one)
            generation = one.consumer.generation()

            groups.kill()
            produce(server, topic, 1, first=10)
            poll_until(lambda: len(one.records) == 44, "the records that came meanwhile", one)
            groups.start()

            one.consumer.commit(asynchronous=False)
            assert committed(groups, group, topic) == dict.fromkeys(range(4), 11)
            assert len(set(one.records)) == len(one.records)
            assert one.consumer.generation() == generation


def test_the_members_of_a_pool_join_there_too(
    server: Server, groups: HoldfastBroker, shared_topic: str, group: str
) -> None:
    read = []
    config = QUICK | {
        "bootstrap.servers": server.bootstrap,
        "group.bootstrap.servers": groups.bootstrap,
        "group.id": group,
        "group.instance.id": "eu",
    }

    def handle(_: Consumer, message: Any) -> None:
        read.append((message.partition(), message.offset()))

    with Pool(config, 4) as pool:
        pool.start([shared_topic], handle)
        eventually(lambda: len(set(read)) == 40, "all records", PATIENCE_S)
        with Admin({"bootstrap.servers": groups.bootstrap}) as admin:
            described = admin.describe_group(group)
    pool.check()

    assert {one.group_instance_id for one in described.members} == set(pool.instance_ids)
    assert [event["generation"] for event in ledger(groups, group) if event["kind"] == "assigned"] == [1]
    await_committed(groups, group, shared_topic, 10)
    assert group not in group_ids(server)


@pytest.mark.parametrize("wrong", ["groups", "records"])
def test_a_server_that_is_not_there_is_reported(
    quick_holdfast: HoldfastBroker, topic: str, group: str, wrong: str
) -> None:
    servers = {"group.bootstrap.servers": quick_holdfast.bootstrap, "bootstrap.servers": quick_holdfast.bootstrap}
    servers["group.bootstrap.servers" if wrong == "groups" else "bootstrap.servers"] = NOWHERE
    config = QUICK | servers | {"group.id": group, "request.timeout.ms": 1_000, "log_level": 0}
    with Consumer(config, default_api_timeout_ms=2_000) as consumer:
        if wrong == "records":
            with pytest.raises(ConnectionFailed, match=rf"^no broker can be reached: .*{NOWHERE}"):
                consumer.get_watermark_offsets(TopicPartition(topic, 0))
            return
        consumer.subscribe([topic])
        with pytest.raises(ConnectionFailed) as raised:
            eventually(lambda: consumer.poll(0.1), "an error", PATIENCE_S)
    assert f"the coordinator of group '{group}' was not reached yet" in str(raised.value)
    assert "no broker of group.bootstrap.servers can be reached" in str(raised.value)
    assert NOWHERE in str(raised.value)


# -- members and administrators ----------------------------------------------------------------------------------------


def test_a_member_needs_only_the_server_of_its_group(groups: HoldfastBroker, group: str) -> None:
    def assign(members: Any) -> dict[str, Any]:
        return {one.member_id: {"of": len(members)} for one in members}

    config = {"bootstrap.servers": NOWHERE, "group.bootstrap.servers": groups.bootstrap, "group.id": group}
    with Member(config, "shards", {"p": {}}, assign) as member:
        assert member.wait_for_assignment(PATIENCE_S).state == {"of": 1}
        assert group in group_ids(groups)

    control = {name: value for name, value in config.items() if name != "group.bootstrap.servers"}
    with Member(control, "shards", {"p": {}}, assign) as member, pytest.raises(RequestTimedOut):
        member.wait_for_assignment(1)


def test_an_admin_asks_each_server_for_what_it_has(
    server: Server, groups: HoldfastBroker, shared_topic: str, group: str
) -> None:
    split = {"bootstrap.servers": server.bootstrap, "group.bootstrap.servers": groups.bootstrap}
    with Admin(split) as admin:
        # groups, their offsets, configs and history
        admin.alter_offsets(group, {(shared_topic, partition): 3 for partition in range(4)})
        assert group in {one.group_id for one in admin.list_groups()}
        assert admin.describe_group(group).state == "Empty"
        assert committed(groups, group, shared_topic) == dict.fromkeys(range(4), 3)
        assert [one.error for one in admin.add_members(group, ["a"])] == [None]
        assert [one.error for one in admin.cancel_registration(group, ["a"])] == [None]
        admin.configure_group(group, {"target.group.size": 2})
        assert admin.group_config(group)["target.group.size"].value == "2"
        assert {event.group_id for event in admin.history([group])} == {group}

        # the ends of the topics
        assert [(one.committed, one.end) for one in admin.lag(group)] == [(3, 10)] * 4
        assert {one.after for one in admin.reset_offsets(group, [shared_topic], to="latest").values()} == {10}
        assert {one.name: one.partitions for one in admin.list_topics()}[shared_topic] == 4
        (described,) = admin.describe_topics([shared_topic])
        assert {one.latest for one in described.partitions} == {10}

        assert admin.delete_offsets(group, [(shared_topic, 0)]) == {(shared_topic, 0): None}
        assert admin.delete_groups([group]) == {group: None}
    assert group not in group_ids(groups) | group_ids(server)


# -- security ----------------------------------------------------------------------------------------------------------


def test_the_server_of_the_groups_can_have_its_own_security(
    quick_holdfast: HoldfastBroker, topic: str, group: str, tmp_path: Path
) -> None:
    make_topic(quick_holdfast, topic)
    produce(quick_holdfast, topic, 10)
    with SecuredBroker(tmp_path) as groups:
        guard = {f"group.{name}": value for name, value in groups.settings("admin").items()}
        config = QUICK | guard | {"bootstrap.servers": quick_holdfast.bootstrap, "group.id": group}
        with groups.connect_as("admin") as admin:
            admin.create_topic(topic, 4)

        with Consumer(config) as consumer:
            consumer.subscribe([topic])
            read: list[Any] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(read) < 40 and time.monotonic() < deadline:
                read += consumer.consume(100, 0.1)
            assert len(read) == 40
            consumer.commit(asynchronous=False)
        with Admin(groups.settings("admin")) as asking:
            assert {one.offset for one in asking.list_offsets(group).values()} == {10}

        # control: a wrong password
        with Consumer(config | {"group.sasl.password": f"{PASSWORDS['admin']}?"}) as consumer:
            consumer.subscribe([topic])
            with pytest.raises(AuthenticationFailed):
                eventually(lambda: consumer.poll(0.1), "an error", PATIENCE_S)
