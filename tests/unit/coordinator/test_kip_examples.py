"""The examples and procedures of the KIPs, as tests that bear their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, decode_assignment, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import REBALANCE_MS, CoordinatorHarness
from tests.unit.coordinator.members import (
    Consumer,
    dynamic,
    joined,
    keep_alive,
    lone_member,
    pair,
    stable,
    subscription,
)


def ranges(members: Sequence[Any], partitions: int) -> dict[str, bytes]:
    """The range assignor, with the instance id as the first sort key, as KIP-345 proposes it."""
    ordered = sorted(members, key=lambda member: (member.group_instance_id or "~", member.member_id))
    each = partitions // len(ordered)
    return {
        member.member_id: encode_assignment(
            Assignment([TopicPartitions("t", list(range(index * each, (index + 1) * each)))])
        )
        for index, member in enumerate(ordered)
    }


def partitions_of(assignment: bytes) -> list[int]:
    return [partition for topic in decode_assignment(assignment).assigned_partitions for partition in topic.partitions]


def sync_by_range(harness: CoordinatorHarness, *consumers: Consumer) -> dict[str | None, list[int]]:
    """All sync; the leader assigns by range. What each instance got."""
    (leader,) = [consumer for consumer in consumers if consumer.leads]
    waiting = {consumer.instance: consumer.sync() for consumer in consumers if consumer is not leader}
    given = ranges(leader.members, 9)
    waiting[leader.instance] = harness.sync(leader.id, leader.generation, given, instance=leader.instance)
    return {instance: partitions_of(handle.reply.assignment) for instance, handle in waiting.items()}


# -- KIP-345's example -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who_restarts", ["A", "B", "C"])
def test_kip_345_example_a_b_c_over_nine_partitions_with_one_restarted(who_restarts: str) -> None:
    harness = CoordinatorHarness()
    consumers = {name: Consumer(harness, instance=name, metadata=subscription("t")) for name in "ABC"}
    joined(*consumers.values())
    expected = {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7, 8]}
    assert sync_by_range(harness, *consumers.values()) == expected

    # One of them restarts: a new member id, the same generation, the same partitions, and nobody else notices.
    old_id = consumers[who_restarts].id
    consumers[who_restarts] = consumers[who_restarts].restarted()
    consumers[who_restarts].join()
    assert consumers[who_restarts].id != old_id
    assert partitions_of(consumers[who_restarts].sync().reply.assignment) == expected[who_restarts]
    assert [consumer.heartbeat() for consumer in consumers.values()] == [ErrorCode.NONE] * 3
    assert harness.generation() == 1

    # Then something makes the group rebalance: with the instance id as the sort key, nothing moves.
    for consumer in sorted(consumers.values(), key=lambda consumer: consumer.id != harness.group().leader_id):
        consumer.join()
    for consumer in consumers.values():
        consumer.take()
    assert harness.generation() == 2
    assert sync_by_range(harness, *consumers.values()) == expected


# -- the four triggers -------------------------------------------------------------------------------------------------


def rebalances(harness: CoordinatorHarness) -> int:
    return len(harness.events_of(EventKind.REBALANCE_STARTED))


def test_kip_345_trigger_1_a_new_member_joins() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    before = rebalances(harness)

    harness.join(instance="N")

    assert (rebalances(harness) - before, leader.heartbeat()) == (1, ErrorCode.REBALANCE_IN_PROGRESS)


def test_kip_345_trigger_2_the_leader_rejoins() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    before = rebalances(harness)

    leader.join()

    assert (rebalances(harness) - before, follower.heartbeat()) == (1, ErrorCode.REBALANCE_IN_PROGRESS)


def test_kip_345_trigger_3_a_member_is_away_for_longer_than_its_session() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    before = rebalances(harness)

    keep_alive(3_000, leader)

    assert (rebalances(harness) - before, leader.heartbeat()) == (1, ErrorCode.REBALANCE_IN_PROGRESS)


def test_kip_345_trigger_4_a_leave_request_names_instance_ids() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    before = rebalances(harness)

    harness.leave(("", "F"))

    assert (rebalances(harness) - before, leader.heartbeat()) == (1, ErrorCode.REBALANCE_IN_PROGRESS)


def test_kip_345_and_nothing_else_is_a_trigger() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    before = rebalances(harness)

    follower.join()  # an old member rejoins
    follower.sync()
    follower.restarted(version=5).join()  # restarts, of the follower and of the leader, old and new
    back = follower.restarted()
    back.join()
    leader.restarted(version=8).join()
    leading = leader.restarted()
    leading.join()
    leader.heartbeat()  # the fenced ones try everything
    leader.join()
    leader.sync()
    leader.commit(1)
    leader.leave()
    harness.leave(("", "nobody"), ("nobody", None), ("", None))
    harness.join()  # somebody asks for an id and never comes
    harness.join(instance="X", protocols=["unheard of"])
    harness.join(instance="X", protocol_type="connect")
    keep_alive(2_900, back, leading)  # away for less than a session
    harness.restart()
    keep_alive(6_000, back, leading)

    assert rebalances(harness) == before
    assert (harness.state(), harness.generation()) == ("Stable", 1)
    assert [back.heartbeat(), leading.heartbeat()] == [ErrorCode.NONE] * 2


# -- KIP-814 -----------------------------------------------------------------------------------------------------------


def test_kip_814_the_leader_rejoins_at_v9_and_still_leads() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    back = leader.restarted()

    handle = back.join()

    assert (handle.reply.skip_assignment, back.leads, back.generation) == (True, True, 1)
    assert {entry.group_instance_id for entry in back.members} == {"L", "F"}, "it must watch the topics of all"
    assert harness.sync(back.id, 1, {}, instance="L").reply.assignment == b"\x01"
    assert follower.heartbeat() == ErrorCode.NONE
    assert back.join().is_pending, "as the leader it can still begin a rebalance"


def test_kip_814_the_leader_rejoins_below_v9_and_follows() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    back = leader.restarted(version=8)

    handle = back.join()

    assert (back.leads, back.members, back.generation) == (False, [], 1)
    assert handle.reply.leader == leader.id
    assert back.sync().reply.assignment == b"\x01"
    assert follower.heartbeat() == ErrorCode.NONE


def test_kip_814_skip_assignment_is_only_for_a_restart_in_a_stable_group() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)

    back = leader.restarted()
    handle = back.join()
    follower.join()

    assert (handle.generation, handle.reply.skip_assignment) == (2, False)


# -- upgrade and downgrade ---------------------------------------------------------------------------------------------


def roll(consumers: list[Consumer], index: int, successor: Consumer) -> None:
    """One bounce of a rolling bounce: the old process goes (a dynamic one says so), the new one comes, all settle."""
    old = consumers[index]
    if old.instance is None:
        old.leave()
    consumers[index] = successor
    successor.join()
    settle(*consumers)


def settle(*consumers: Consumer) -> None:
    """Any member that is asked to rejoin does; then all sync."""
    harness = consumers[0].harness
    for consumer in consumers:
        if consumer.joining is None and consumer.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            consumer.join()
    for _ in range(REBALANCE_MS // 50 + 1):
        for consumer in consumers:
            consumer.take()
        if all(consumer.joining is None for consumer in consumers):
            break
        harness.advance(50)
    assert [consumer.joining for consumer in consumers] == [None] * len(consumers)
    if harness.state() == "CompletingRebalance":
        leader = next(consumer for consumer in consumers if consumer.leads)
        for follower in consumers:
            if follower is not leader:
                follower.sync()
        leader.sync(*(consumer for consumer in consumers if consumer is not leader))
    assert harness.state() == "Stable"


def test_kip_345_upgrade_in_four_steps() -> None:
    harness = CoordinatorHarness()
    # 1 and 2: brokers and clients know of static membership; the group is dynamic still.
    consumers = [dynamic(harness, session_ms=10_000) for _ in range(3)]
    stable(*consumers)

    # 3 and 4: the instance ids are set, and the group is bounced one by one.
    for index, name in enumerate("ABC"):
        roll(consumers, index, Consumer(harness, instance=name, session_ms=10_000))
        assert len(harness.describe().members) == 3
    assert {member.group_instance_id for member in harness.describe().members} == {"A", "B", "C"}

    # From now on a bounce is free.
    generation = harness.generation()
    for index in range(3):
        roll(consumers, index, consumers[index].restarted())
    assert harness.generation() == generation


def test_kip_345_downgrade_leaves_with_a_null_instance_id() -> None:
    harness = CoordinatorHarness()
    consumers = [Consumer(harness, instance=name, session_ms=10_000) for name in "AB"]
    stable(*consumers)

    left = harness.leave((consumers[0].id, None))

    assert left.codes == [ErrorCode.NONE]
    assert [member.group_instance_id for member in harness.describe().members] == ["B"]


def test_kip_345_downgrade_the_old_metadata_is_removed_when_its_session_expires() -> None:
    harness = CoordinatorHarness()
    consumers = [Consumer(harness, instance=name, session_ms=10_000) for name in "AB"]
    stable(*consumers)

    for index in range(2):  # the bounce: the static process is silent, a dynamic one comes
        roll(consumers, index, dynamic(harness, session_ms=10_000))
    assert len(harness.describe().members) == 4, "the static members are kept for now"
    keep_alive(10_000, *consumers)
    settle(*consumers)

    assert [member.group_instance_id for member in harness.describe().members] == [None, None]


def test_a_lone_dynamic_member_becomes_static() -> None:
    harness = CoordinatorHarness()
    lone_member(harness).leave()

    static = lone_member(harness, instance="A")

    assert static.heartbeat() == ErrorCode.NONE
