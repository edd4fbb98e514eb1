"""`Admin` and topics, on both servers; and the ledger, on Holdfast."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from holdfast import Admin
from holdfast.client.errors import ConfigError, TopicError
from holdfast.client.history import HistoryEvent
from holdfast.client.topic_admin import NewTopic
from holdfast.coordinator.events.causes import CauseCode
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture
def admin(server: Server) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": server.bootstrap}) as opened:
        yield opened


def listed(admin: Admin, topic: str) -> tuple[int, int] | None:
    found = [one for one in admin.list_topics() if one.name == topic]
    return (found[0].partitions, found[0].replication_factor) if found else None


def test_topics_are_created_listed_described_and_deleted(server: Server, admin: Admin, topic: str) -> None:
    given = [NewTopic(topic, 2, 1, {"retention.ms": "3600000"}), NewTopic(f"{topic}-plain")]
    assert admin.create_topics(given) == {topic: None, f"{topic}-plain": None}
    eventually(lambda: listed(admin, topic) == (2, 1), "the topic with its partitions")
    eventually(lambda: listed(admin, f"{topic}-plain") == (1, 1), "the other one")
    produce(server, topic, 5, partitions=1)

    plain, described = admin.describe_topics([f"{topic}-plain", topic])
    assert (plain.name, dict(plain.configs)) == (f"{topic}-plain", {})
    assert (described.name, described.internal, described.replication_factor) == (topic, False, 1)
    assert dict(described.configs) == {"retention.ms": "3600000"}
    assert [(one.number, one.earliest, one.latest) for one in described.partitions] == [(0, 0, 5), (1, 0, 0)]
    (leader,) = {one.leader for one in described.partitions}
    assert [(list(one.replicas), list(one.in_sync)) for one in described.partitions] == [([leader], [leader])] * 2
    assert described.topic_id is not None and len(described.topic_id) == 22

    assert admin.delete_topics([topic, f"{topic}-plain"]) == {topic: None, f"{topic}-plain": None}
    eventually(lambda: listed(admin, topic) is None, "the topic is gone")


def test_a_topic_that_cannot_be_has_its_own_result(server: Server, admin: Admin, topic: str) -> None:
    make_topic(server, topic)
    results = admin.create_topics([NewTopic(topic), NewTopic("a b"), NewTopic(f"{topic}-2", configs={"nope": "1"})])
    codes = {name: error and error.code for name, error in results.items()}
    assert codes == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{topic}-2": ErrorCode.INVALID_CONFIG,
    }
    assert str(results[topic]) == f"topic {topic!r}: TOPIC_ALREADY_EXISTS: it exists already"
    assert list(results) == [topic, "a b", f"{topic}-2"]
    deleted = admin.delete_topics([topic, f"{topic}-missing"])
    missing = deleted[f"{topic}-missing"]
    assert deleted[topic] is None
    assert missing is not None and missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ConfigError, match="partitions cannot be 0"):
        admin.create_topics([NewTopic(topic, 0)])
    assert (admin.create_topics([]), admin.delete_topics([]), admin.add_partitions({})) == ({}, {}, {})


def test_what_is_only_to_be_checked_is_not_made(admin: Admin, topic: str) -> None:
    assert admin.create_topics([NewTopic(topic, 2)], validate_only=True) == {topic: None}
    assert listed(admin, topic) is None
    assert admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
    eventually(lambda: listed(admin, topic) == (2, 1), "now it is made")


def test_partitions_are_added_and_never_taken(server: Server, admin: Admin, topic: str) -> None:
    make_topic(server, topic, 2)
    assert admin.add_partitions({topic: 3}) == {topic: None}
    eventually(lambda: listed(admin, topic) == (3, 1), "a third partition")
    refused = admin.add_partitions({topic: 2})[topic]
    assert refused is not None and refused.code is ErrorCode.INVALID_PARTITIONS


def test_a_topic_that_is_not_there_is_not_described(admin: Admin, topic: str) -> None:
    with pytest.raises(TopicError, match="it does not exist"):
        admin.describe_topics([topic])
    assert admin.describe_topics([]) == []


def test_offsets_of_some_partitions_are_reset(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    done = admin.reset_offsets(group, [(topic, 1), (topic, 3)], to=4)
    assert {where: one.after for where, one in done.items()} == {(topic, 1): 4, (topic, 3): 4}
    assert committed(server, group, topic) == {1: 4, 3: 4}
    with pytest.raises(TopicError, match="has partitions 0 to 3, and no 4"):
        admin.reset_offsets(group, [(topic, 4)], to="earliest")


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_history_is_read_followed_and_summed_up(quick_holdfast: HoldfastBroker, topic: str, group: str) -> None:
    make_topic(quick_holdfast, topic)
    produce(quick_holdfast, topic, 1)
    with Admin({"bootstrap.servers": quick_holdfast.bootstrap}) as admin:
        first = Watched(quick_holdfast, group, group_instance_id="instance-1").subscribe(topic)
        with watching(first):
            poll_until(lambda: first.partitions, "a member", first)

            def assignments() -> list[HistoryEvent]:
                return [one for one in admin.history([group]) if one.kind == "assigned"]

            (assigned,) = assignments()
            between = assigned.at_ms + 1  # of its own millisecond it would be read, and not followed
            following = admin.follow_history([group], wait=0.2)
            second = Watched(quick_holdfast, group).subscribe(topic)
            with watching(second):
                poll_until(lambda: len(assignments()) == 2, "a second assignment", first, second)
                poll_until(evenly_assigned(4, first, second), "both have come for it", first, second)

                events = admin.history([group])
                assert {one.group_id for one in events} == {group}
                assert [one.offset for one in events] == sorted(one.offset for one in events)
                recent = admin.history([group], since_ms=between)
                assert events[-len(recent) :] == recent
                assert 0 < len(recent) < len(events)
                assert admin.history([group], since_ms=int(time.time() * 1000) + 60_000) == []
                followed: list[HistoryEvent] = []
                while len(followed) < len(recent):
                    followed += next(following)
                assert followed[: len(recent)] == recent

                last = admin.last_rebalances([group, f"{group}-missing"])
                assert list(last) == [group]
                assert last[group].generation == second.consumer.generation()
                assert last[group].cause_code == CauseCode.MEMBER_JOINED
                assert last[group].member == second.consumer.memberid()
                assert last[group].unassigned_ms is not None


def test_following_continues_after_a_restart_of_the_broker() -> None:
    with HoldfastBroker() as broker:
        make_topic(broker, "orders")

        def come_and_go() -> None:
            one = Watched(broker, "g").subscribe("orders")
            with watching(one):
                poll_until(lambda: one.partitions, "a member", one)

        come_and_go()
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            following = admin.follow_history(["g"], wait=0.1)
            broker.restart()
            come_and_go()
            eventually(lambda: "assigned" in [one.kind for one in next(following)], "news")


def test_a_server_without_a_ledger_says_so(server: Server, admin: Admin, group: str) -> None:
    if isinstance(server, HoldfastBroker):
        with HoldfastBroker() as fresh, Admin({"bootstrap.servers": fresh.bootstrap}) as asking:
            check_there_is_no_ledger(asking, group)
    else:
        check_there_is_no_ledger(admin, group)


def check_there_is_no_ledger(admin: Admin, group: str) -> None:
    for ask in (admin.history, admin.follow_history):
        with pytest.raises(TopicError, match="Apache Kafka keeps none"):
            ask([group])
    assert admin.last_rebalances([group]) == {}
