"""The ledger: whatever happens to a group is recorded with its cause and its member, for any consumer to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind
from holdfast.wire.apis.leave_group import MemberIdentity
from holdfast.wire.error_codes import ErrorCode
from tests.broker.group_broker import FailAt, GroupBroker
from tests.broker.group_members import (
    WireMember,
    assign_evenly,
    delete_group,
    described,
    form,
    partitions,
    wait_for_ledger,
    wait_for_state,
    wait_until_loaded,
)
from tests.broker.wire_client import WireClient, batch
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

GROUP = "story"
SETTINGS = {
    "group.min.session.timeout.ms": "200",
    "offsets.topic.num.partitions": "2",
}
NONE, FENCED_INSTANCE_ID, NOT_COORDINATOR = 0, 82, 16

Expected = dict[str, Any]
Started = HoldfastBroker | GroupBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HoldfastBroker]:
    with HoldfastBroker(SETTINGS, directory=tmp_path) as started:
        with WireClient(started.address) as client:
            client.create_topic("orders", partitions=4)
        yield started


def ledger(broker: Started) -> list[Expected]:
    """All of it, as a plain consumer without a group reads it."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition(LEDGER_TOPIC, 0, 0)])
    events: list[Expected] = []

    def read_to_the_end() -> bool:
        for message in consumer.consume(500, timeout=0.1):
            failure = message.error()
            if failure is not None:
                assert failure.code() == KafkaError._PARTITION_EOF, failure
                return True
            value, key = message.value(), message.key()
            assert isinstance(value, bytes)
            assert isinstance(key, bytes)
            event = json.loads(value)
            assert event["group_id"] == key.decode()
            events.append(event)
        return False

    try:
        eventually(read_to_the_end, "the end of the ledger")
    finally:
        consumer.close()
    return events


def of(broker: Started, kind: EventKind) -> list[Expected]:
    return [event for event in ledger(broker) if event["kind"] == kind]


def the(broker: Started, kind: EventKind) -> Expected:
    (event,) = of(broker, kind)
    return event


def who(event: Expected) -> tuple[Any, Any, Any, Any]:
    return event["member_id"], event.get("instance_id"), event["client_id"], event["client_host"]


def known_as(member: WireMember) -> tuple[Any, Any, Any, Any]:
    return member.member_id, member.instance_id, "holdfast-tests", "/127.0.0.1"


# -- the story ---------------------------------------------------------------------------------------------------------


def test_a_group_forms_and_assigns_its_partitions(broker: HoldfastBroker) -> None:
    leader, follower = WireMember(broker.address, GROUP, "a"), WireMember(broker.address, GROUP)
    form(leader, follower)
    assign_evenly(leader, follower)

    first, second = of(broker, EventKind.REBALANCE_STARTED)
    assert (first["cause_code"], first["instance_id"], first["generation"]) == (CauseCode.MEMBER_JOINED, "a", 0)
    assert (second["cause_code"], second["cause"]) == (CauseCode.MEMBER_JOINED, "a new member joined")
    assert (who(second), second["generation"]) == (known_as(follower), 1)
    _, formed = of(broker, EventKind.GENERATION_FORMED)
    assert (formed["generation"], formed["previous_generation"], formed["members"]) == (2, 1, 2)
    assert (formed["cause_code"], formed["cause_detail"]) == (CauseCode.PROTOCOL_SELECTED, "range")
    assert who(formed) == known_as(leader)
    assigned = the(broker, EventKind.ASSIGNED)
    assert (assigned["generation"], assigned["members"], who(assigned)) == (2, 2, known_as(leader))
    assert (assigned["unassigned_ms"] >= 0, assigned["moved_partitions"]) == (True, 0)


@pytest.mark.parametrize(("settings", "at_least_ms"), [({}, 0), ({"group.initial.rebalance.delay.ms": "3000"}, 3000)])
def test_a_new_group_waits_for_others_only_if_a_delay_is_set(settings: dict[str, str], at_least_ms: int) -> None:
    with HoldfastBroker(settings) as broker:
        form(WireMember(broker.address, GROUP))

        started, formed = the(broker, EventKind.REBALANCE_STARTED), the(broker, EventKind.GENERATION_FORMED)
        waited_ms = formed["at_ms"] - started["at_ms"]
        # Without a delay nothing but the append of one record lies between them.
        assert waited_ms >= at_least_ms
        assert waited_ms < 3000 or at_least_ms


def test_moved_partitions_are_counted_and_the_clients_reason_is_recorded(broker: HoldfastBroker) -> None:
    leader, follower = WireMember(broker.address, GROUP), WireMember(broker.address, GROUP)
    form(leader, follower)
    leader.send_sync({leader.member_id: partitions(0, 1, 2), follower.member_id: partitions(3)})
    assert leader.synced().error_code == NONE

    # when the leader rejoins, says why, and hands two partitions over
    leader.send(leader.join_request(reason="rejoins for a test"), 9)
    wait_for_state(follower, GROUP, "PreparingRebalance")
    follower.send_join()
    assert (leader.joined().error_code, follower.joined().error_code) == (NONE, NONE)
    leader.sync({leader.member_id: partitions(0), follower.member_id: partitions(1, 2, 3)})

    started = of(broker, EventKind.REBALANCE_STARTED)[-1]
    assert (started["cause_code"], started["reason"]) == (CauseCode.LEADER_REJOINED, "rejoins for a test")
    assert of(broker, EventKind.ASSIGNED)[-1]["moved_partitions"] == 2


def test_a_static_member_restarts_and_its_other_self_is_fenced(broker: HoldfastBroker) -> None:
    old = WireMember(broker.address, GROUP, "a")
    form(old)
    assign_evenly(old)
    restarted = WireMember(broker.address, GROUP, "a")
    restarted.join()
    assert old.heartbeat() == FENCED_INSTANCE_ID

    rejoined = the(broker, EventKind.STATIC_REJOINED)
    assert (who(rejoined), rejoined["generation"]) == (known_as(restarted), 1)
    assert rejoined["cause_code"] == CauseCode.STATIC_MEMBER_REPLACED
    fenced = the(broker, EventKind.FENCED)
    assert (who(fenced), fenced["generation"]) == (known_as(old), 1)
    assert fenced["cause_code"] == CauseCode.FENCED_INSTANCE_ID
    assert len(of(broker, EventKind.REBALANCE_STARTED)) == 1, "the first, and none for the restart"


def test_members_leave_the_group_becomes_empty_and_is_deleted(broker: HoldfastBroker) -> None:
    static, dynamic = WireMember(broker.address, GROUP, "a"), WireMember(broker.address, GROUP)
    form(static, dynamic)
    assign_evenly(static, dynamic)
    dynamic.leave(MemberIdentity(dynamic.member_id, None, "closes"))
    WireMember(broker.address, GROUP).leave(MemberIdentity("", "a", "host replaced"))
    wait_for_state(dynamic, GROUP, "Empty")
    assert delete_group(dynamic, GROUP) == NONE

    itself, removed = of(broker, EventKind.MEMBER_LEFT)
    assert (who(itself), itself["reason"]) == (known_as(dynamic), "closes")
    assert itself["cause_code"] == CauseCode.LEAVE_REQUESTED
    assert (who(removed), removed["reason"]) == (known_as(static), "host replaced")
    assert removed["cause_code"] == CauseCode.REMOVED_BY_CLIENT
    assert removed["cause_detail"] == "holdfast-tests from /127.0.0.1"
    empty = the(broker, EventKind.BECAME_EMPTY)
    assert (empty["cause_code"], empty["members"], empty["generation"]) == (CauseCode.LAST_MEMBER_GONE, 0, 3)
    deleted = the(broker, EventKind.DELETED)
    assert (deleted["cause_code"], deleted["generation"]) == (CauseCode.DELETE_REQUESTED, 3)


def test_a_silent_member_and_one_that_does_not_rejoin(broker: HoldfastBroker) -> None:
    silent = WireMember(broker.address, GROUP)
    silent.take_id()
    silent.send(silent.join_request(session_timeout_ms=200), 9)
    silent.joined()
    wait_for_state(silent, GROUP, "Empty")

    expired = the(broker, EventKind.SESSION_EXPIRED)
    assert (expired["cause_code"], expired["cause_count"]) == (CauseCode.HEARTBEAT_EXPIRED, 200)
    assert who(expired) == known_as(silent)

    # and one that heartbeats, but does not come to the next generation
    slow, quick = WireMember(broker.address, GROUP), WireMember(broker.address, GROUP)
    slow.take_id()
    slow.send(slow.join_request(rebalance_timeout_ms=300), 9)
    slow.joined()
    quick.take_id()
    quick.send(quick.join_request(rebalance_timeout_ms=300), 9)
    assert quick.joined().error_code == NONE

    dropped = of(broker, EventKind.DROPPED)[0]
    assert (who(dropped), dropped["cause_code"]) == (known_as(slow), CauseCode.JOIN_TIMED_OUT)


def test_one_that_joins_and_does_not_sync(broker: HoldfastBroker) -> None:
    with WireMember(broker.address, GROUP) as member:
        member.take_id()
        member.send(member.join_request(rebalance_timeout_ms=300), 9)
        member.joined()
        wait_for_state(member, GROUP, "Empty")

        dropped = the(broker, EventKind.DROPPED)
        assert (who(dropped), dropped["cause_code"]) == (known_as(member), CauseCode.SYNC_TIMED_OUT)


@pytest.mark.parametrize("record", ["GenerationKey", "GroupMetadataKey"])
def test_a_change_that_could_not_be_stored_is_recorded_and_undone(record: str, tmp_path: Path) -> None:
    with GroupBroker(tmp_path / "data") as broker, WireMember(broker.address, GROUP, "a") as member:
        member.join()
        wait_for_ledger(member)
        broker.arm(FailAt(record))
        if record == "GenerationKey":
            other = WireMember(broker.address, GROUP, "b")
            other.send_join()
            wait_for_state(WireClient(broker.address), GROUP, "PreparingRebalance")
            member.send_join()
            assert {member.joined().error_code, other.joined().error_code} == {NOT_COORDINATOR}
            other.send_join()
            member.send_join()
            assert (other.joined().error_code, member.joined().generation_id) == (NONE, 2)
            cause = CauseCode.GENERATION_NOT_STORED
        else:
            assert member.sync({member.member_id: partitions(0)}).error_code == NOT_COORDINATOR
            assert member.join().generation_id == 2
            cause = CauseCode.ASSIGNMENT_NOT_STORED

        failed = the(broker, EventKind.STORE_FAILED)
        assert (failed["cause_code"], failed["cause_detail"]) == (cause, "NOT_COORDINATOR")


def test_generations_never_go_back_also_not_over_kills_and_deletions(broker: HoldfastBroker) -> None:
    for turn in range(4):
        with WireMember(broker.address, GROUP, "a") as member:
            wait_until_loaded(member)
            member.join()
            wait_for_ledger(member)
            assert member.sync({member.member_id: partitions(0)}).error_code == NONE
            if turn == 1:
                member.leave()
                wait_for_state(member, GROUP, "Empty")
                assert delete_group(member, GROUP) == NONE
            if turn == 2:
                member.join()  # killed between join and sync
        broker.kill()
        broker.start()

    with WireClient(broker.address) as client:
        wait_until_loaded(client)
        assert described(client, GROUP).group_state in ("Stable", "CompletingRebalance")
    generations = [event["generation"] for event in ledger(broker) if event["group_id"] == GROUP]
    assert generations == sorted(generations)
    assert len(set(generations)) >= 4, "they advance: else this shows nothing"
    formed = [event["generation"] for event in of(broker, EventKind.GENERATION_FORMED)]
    assert len(set(formed)) == len(formed), "none is given twice"


def test_no_client_can_write_to_the_group_ledger(broker: HoldfastBroker) -> None:
    with WireClient(broker.address) as client:
        form(WireMember(broker.address, GROUP))
        wait_for_ledger(client)

        refused = client.produce(LEDGER_TOPIC, batch(b'{"event": "forged"}'))

        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert client.produce("orders", batch(b"anything")).error_code == ErrorCode.NONE
