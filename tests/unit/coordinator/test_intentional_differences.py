"""Where Holdfast is better than Apache Kafka on purpose: the points of docs/differences.md, one by one."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.member import Client
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, decode_assignment
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for
from tests.unit.coordinator.harness import CoordinatorHarness
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

# -- 1 -----------------------------------------------------------------------------------------------------------------


def absent_follower(harness: CoordinatorHarness) -> tuple[Consumer, Consumer]:
    """Given: generation 2 of a pair with long sessions, F away since before it."""
    leader, follower = pair(harness, session_ms=60_000, rebalance_ms=1_000)
    leader.metadata = b"changed"
    leader.join()
    harness.advance(1_000)
    leader.take()
    assert leader.generation == 2
    return leader, follower


def test_an_absent_static_member_expires_by_session_not_by_sync_timer() -> None:
    harness = CoordinatorHarness()
    leader, follower = absent_follower(harness)
    leader.sync(follower)

    keep_alive(10_000, leader)
    assert leader.heartbeat() == ErrorCode.NONE, "ten sync timers later"
    back = follower.restarted()
    back.join()

    assert back.sync().reply.assignment == follower.assignment


def test_control_a_static_member_that_joined_and_does_not_sync_is_removed() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    leader.sync(follower)

    keep_alive(1_500, leader, follower)

    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_absent_static_member_expires_when_its_session_ends() -> None:
    harness = CoordinatorHarness()
    leader, follower = absent_follower(harness)
    leader.sync(follower)

    keep_alive(60_000, leader)

    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.heartbeat(follower.id, 2, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_absent_static_member_expires_by_session_also_after_a_broker_restart() -> None:
    harness = CoordinatorHarness()
    leader, follower = absent_follower(harness)
    harness.restart()
    assert harness.state() == "CompletingRebalance"
    leader.sync(follower)

    keep_alive(10_000, leader)

    assert leader.heartbeat() == ErrorCode.NONE


# -- 2 -----------------------------------------------------------------------------------------------------------------


def test_a_replacement_inherits_the_pending_sync() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    leader.sync(follower)
    back = follower.restarted()
    back.join()
    assert back.sync().code == ErrorCode.NONE

    keep_alive(6_000, leader, back)

    assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2
    assert harness.generation() == 1


# -- 3 -----------------------------------------------------------------------------------------------------------------


def test_a_restarted_static_member_rejoins_a_full_stable_group() -> None:
    harness = CoordinatorHarness(max_size=2)
    leader, follower = pair(harness)

    assert follower.restarted().join().code == ErrorCode.NONE
    assert leader.heartbeat() == ErrorCode.NONE
    assert harness.join(instance="unknown").code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_restarted_static_member_rejoins_a_full_group_that_awaits_the_sync() -> None:
    harness = CoordinatorHarness(max_size=2)
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)

    again = follower.restarted().join()

    assert again.is_pending
    leader.join()
    assert again.code == ErrorCode.NONE


def test_a_restarted_static_member_rejoins_a_full_group_in_its_join_phase() -> None:
    harness = CoordinatorHarness(max_size=2)
    leader, follower = pair(harness)
    leader.join()

    assert follower.restarted().join().code == ErrorCode.NONE


# -- 4 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leave", "removed by instance id"])
def test_the_pending_sync_of_a_removed_member_is_answered(how: str) -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    harness.leave(("" if how != "leave" else follower.id, "F"))

    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_superseded_join_is_answered() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    first = member.join()

    second = member.join()

    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.advance(400)
    assert second.code == ErrorCode.NONE


def test_a_superseded_sync_is_answered() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    first = follower.sync()

    second = follower.sync()

    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.sync(follower)
    assert second.code == ErrorCode.NONE


# -- 5 -----------------------------------------------------------------------------------------------------------------


def test_describe_shows_the_client_of_the_latest_restart() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    follower.restarted(client=Client("new-client", "/10.0.0.9")).join()

    for _ in range(2):
        shown = {member.group_instance_id: member for member in harness.describe().members}["F"]
        assert (shown.client_id, shown.client_host) == ("new-client", "/10.0.0.9")
        harness.restart()


# -- 6 -----------------------------------------------------------------------------------------------------------------


def test_the_generation_does_not_decrease_after_a_crash_between_join_and_sync() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    assert member.join().generation == 2

    harness.restart()
    assert harness.generation() == 2
    assert member.join().generation == 3


def test_a_new_group_starts_above_every_deleted_one() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    for _ in range(3):
        member.join()
    member.leave()
    last = harness.generation()
    harness.delete()

    again, other = dynamic(harness), dynamic(harness, group="other")
    joined(again)
    joined(other)

    assert again.generation > last
    assert other.generation > last


def test_a_new_group_starts_above_every_deleted_one_after_a_restart() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.leave()
    last = harness.generation()
    harness.delete()
    harness.compact(keep_tombstones=False)
    harness.restart()

    again = dynamic(harness)
    joined(again)

    assert again.generation > last


def test_a_new_group_starts_above_a_deleted_one_with_only_offsets_after_a_restart() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.leave()
    last = harness.generation()
    harness.delete()
    harness.commit({("t", 0): 1})
    harness.restart()

    again = dynamic(harness)
    joined(again)

    assert again.generation > last


def test_a_new_group_starts_above_two_deleted_during_a_slow_append() -> None:
    harness = CoordinatorHarness(partition_count=1)
    old, young = dynamic(harness, group="old"), dynamic(harness, group="young")
    stable(old)
    for _ in range(5):
        old.join()
    old.leave()
    stable(young)
    young.leave()
    last = harness.generation("old")
    assert harness.generation("young") < last
    harness.pause_appends()
    harness.delete_later("old")
    harness.delete_later("young")
    harness.resume_appends()
    harness.compact()
    harness.restart()

    again = dynamic(harness, group="old")
    joined(again)

    assert again.generation > last


def test_a_new_group_starts_above_deleted_ones_while_other_partitions_load() -> None:
    harness = CoordinatorHarness(partition_count=50)
    high, low = dynamic(harness, group="high"), dynamic(harness, group="low")
    stable(high)
    for _ in range(5):
        high.join()
    high.leave()
    stable(low)
    low.leave()
    last = harness.generation("low")
    harness.delete("high")
    harness.delete("low")
    assert partition_for("high", 50) != partition_for("low", 50)
    del harness.group_log[partition_for("high", 50)]  # not read yet
    harness.restart()

    again = dynamic(harness, group="low")
    joined(again)

    assert again.generation > last


# -- 7 -----------------------------------------------------------------------------------------------------------------


def test_a_consumer_left_out_by_the_leader_gets_an_empty_assignment() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    leader.sync()

    assert (waiting.code, waiting.reply.assignment) == (ErrorCode.NONE, EMPTY_ASSIGNMENT)
    assert decode_assignment(waiting.reply.assignment).assigned_partitions == []


# -- 8 -----------------------------------------------------------------------------------------------------------------


def unaware_leader(harness: CoordinatorHarness) -> tuple[Consumer, Consumer]:
    """Given: a pair that reads `t`, whose leader restarted below v9 and follows now."""
    leader, follower = pair(harness, metadata=subscription("t"))
    back = leader.restarted(version=8)
    back.join()
    assert not back.leads
    return back, follower


def test_without_a_notified_leader_the_coordinator_watches_the_topics() -> None:
    harness = CoordinatorHarness()
    leader, follower = unaware_leader(harness)

    harness.topic_grew("t")

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    leader.join()
    assert follower.join().generation == 2


def test_the_coordinator_watches_only_subscribed_topics() -> None:
    harness = CoordinatorHarness()
    leader, _ = unaware_leader(harness)

    harness.topic_grew("other")

    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", [None, 9])
def test_control_a_notified_leader_watches_the_topics_itself(version: int | None) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=subscription("t"))
    if version is not None:
        leader.restarted(version=version).join()

    harness.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.NONE


def test_a_leader_that_restarts_at_v9_is_notified_again() -> None:
    harness = CoordinatorHarness()
    leader, follower = unaware_leader(harness)
    leader.restarted(version=9).join()

    harness.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.NONE


def test_without_a_notified_leader_topics_are_watched_after_a_broker_restart() -> None:
    harness = CoordinatorHarness()
    _, follower = unaware_leader(harness)
    harness.restart()

    harness.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unknown_member_does_not_replace_an_absent_static_member() -> None:
    # given a full group of two static members in a rebalance, one of them away
    harness = CoordinatorHarness(max_size=2)
    leader, follower = pair(harness)
    leader.join()

    # when an unknown member comes
    unknown = harness.join(version=3)

    # then it is refused, and the one that was away is still a member
    assert unknown.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert follower.restarted().join().code in (None, ErrorCode.NONE)
