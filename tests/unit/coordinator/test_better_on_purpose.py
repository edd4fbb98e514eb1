"""Where Holdfast is better than Apache Kafka on purpose: the points of docs/differences.md, one by one."""

from __future__ import annotations

import pytest

from holdfast.coordinator.members import Client
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, decode_assignment
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, subscription

# -- 1 -----------------------------------------------------------------------------------------------------------------


def absent_follower(bench: Bench) -> tuple[Consumer, Consumer]:
    """Given: generation 2 of a pair with long sessions, F away since before it."""
    leader, follower = pair(bench, session_ms=60_000, rebalance_ms=1_000)
    leader.metadata = b"changed"
    leader.join()
    bench.advance(1_000)
    leader.take()
    assert leader.generation == 2
    return leader, follower


def test_better_1_g96_an_absent_static_member_goes_by_its_session_not_by_the_sync_timer() -> None:
    bench = Bench()
    leader, follower = absent_follower(bench)
    leader.sync(follower)

    keep_alive(10_000, leader)
    assert leader.heartbeat() == ErrorCode.NONE, "ten sync timers later"
    back = follower.restarted()
    back.join()

    assert back.sync().reply.assignment == follower.assignment


def test_better_1_control_a_static_member_that_came_and_does_not_sync_is_dropped() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    leader.sync(follower)

    keep_alive(1_500, leader, follower)

    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_better_1_its_session_does_end_it() -> None:
    bench = Bench()
    leader, follower = absent_follower(bench)
    leader.sync(follower)

    keep_alive(60_000, leader)

    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(follower.id, 2, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID


def test_better_1_holds_over_a_restart_of_the_broker() -> None:
    bench = Bench()
    leader, follower = absent_follower(bench)
    bench.restart()
    assert bench.state() == "CompletingRebalance"
    leader.sync(follower)

    keep_alive(10_000, leader)

    assert leader.heartbeat() == ErrorCode.NONE


# -- 2 -----------------------------------------------------------------------------------------------------------------


def test_better_2_a_replacement_takes_the_pending_sync_along() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    leader.sync(follower)
    back = follower.restarted()
    back.join()
    assert back.sync().code == ErrorCode.NONE

    keep_alive(6_000, leader, back)

    assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2
    assert bench.generation() == 1


# -- 3 -----------------------------------------------------------------------------------------------------------------


def test_better_3_a_restarted_static_member_is_recognised_in_a_full_stable_group() -> None:
    bench = Bench(max_size=2)
    leader, follower = pair(bench)

    assert follower.restarted().join().code == ErrorCode.NONE
    assert leader.heartbeat() == ErrorCode.NONE
    assert bench.join(instance="stranger").code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_better_3_and_while_the_assignment_is_awaited() -> None:
    bench = Bench(max_size=2)
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)

    again = follower.restarted().join()

    assert again.parked
    leader.join()
    assert again.code == ErrorCode.NONE


def test_better_3_and_while_the_group_rejoins() -> None:
    bench = Bench(max_size=2)
    leader, follower = pair(bench)
    leader.join()

    assert follower.restarted().join().code == ErrorCode.NONE


# -- 4 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leave", "removed by instance id"])
def test_better_4_the_parked_sync_of_a_member_that_goes_is_answered(how: str) -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    bench.leave(("" if how != "leave" else follower.id, "F"))

    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_better_4_a_superseded_join_is_answered() -> None:
    bench = Bench()
    member = dynamic(bench)
    first = member.join()

    second = member.join()

    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(400)
    assert second.code == ErrorCode.NONE


def test_better_4_a_superseded_sync_is_answered() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    first = follower.sync()

    second = follower.sync()

    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.sync(follower)
    assert second.code == ErrorCode.NONE


# -- 5 -----------------------------------------------------------------------------------------------------------------


def test_better_5_describe_shows_the_client_that_is_there_now() -> None:
    bench = Bench()
    _, follower = pair(bench)
    follower.restarted(client=Client("new-client", "/10.0.0.9")).join()

    for _ in range(2):
        shown = {member.group_instance_id: member for member in bench.describe().members}["F"]
        assert (shown.client_id, shown.client_host) == ("new-client", "/10.0.0.9")
        bench.restart()


# -- 6 -----------------------------------------------------------------------------------------------------------------


def test_better_6_the_generation_does_not_go_back_over_a_crash_between_join_and_sync() -> None:
    bench = Bench()
    member = lone_member(bench)
    assert member.join().generation == 2

    bench.restart()
    assert bench.generation() == 2
    assert member.join().generation == 3


def test_better_6_a_new_group_starts_above_every_deleted_one() -> None:
    bench = Bench()
    member = lone_member(bench)
    for _ in range(3):
        member.join()
    member.leave()
    last = bench.generation()
    bench.delete()

    again, other = dynamic(bench), dynamic(bench, group="other")
    joined(again)
    joined(other)

    assert again.generation > last
    assert other.generation > last


def test_better_6_also_over_a_restart() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.leave()
    last = bench.generation()
    bench.delete()
    bench.compact(keep_tombstones=False)
    bench.restart()

    again = dynamic(bench)
    joined(again)

    assert again.generation > last


def test_better_6_also_if_only_offsets_were_committed_before_a_restart() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.leave()
    last = bench.generation()
    bench.delete()
    bench.commit({("t", 0): 1})
    bench.restart()

    again = dynamic(bench)
    joined(again)

    assert again.generation > last


def test_better_6_also_if_two_groups_are_deleted_while_the_disk_is_slow() -> None:
    bench = Bench(partition_count=1)
    old, young = dynamic(bench, group="old"), dynamic(bench, group="young")
    stable(old)
    for _ in range(5):
        old.join()
    old.leave()
    stable(young)
    young.leave()
    last = bench.generation("old")
    assert bench.generation("young") < last
    bench.hold()
    bench.delete_later("old")
    bench.delete_later("young")
    bench.release()
    bench.compact()
    bench.restart()

    again = dynamic(bench, group="old")
    joined(again)

    assert again.generation > last


def test_better_6_also_while_other_partitions_of_the_journal_are_still_being_read() -> None:
    bench = Bench(partition_count=50)
    high, low = dynamic(bench, group="high"), dynamic(bench, group="low")
    stable(high)
    for _ in range(5):
        high.join()
    high.leave()
    stable(low)
    low.leave()
    last = bench.generation("low")
    bench.delete("high")
    bench.delete("low")
    assert partition_for("high", 50) != partition_for("low", 50)
    del bench.journal[partition_for("high", 50)]  # not read yet
    bench.restart()

    again = dynamic(bench, group="low")
    joined(again)

    assert again.generation > last


# -- 7 -----------------------------------------------------------------------------------------------------------------


def test_better_7_a_forgotten_consumer_gets_a_well_formed_nothing() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    leader.sync()

    assert (waiting.code, waiting.reply.assignment) == (ErrorCode.NONE, EMPTY_ASSIGNMENT)
    assert decode_assignment(waiting.reply.assignment).assigned_partitions == []


# -- 8 -----------------------------------------------------------------------------------------------------------------


def unaware_leader(bench: Bench) -> tuple[Consumer, Consumer]:
    """Given: a pair that reads `t`, whose leader restarted below v9 and follows now."""
    leader, follower = pair(bench, metadata=subscription("t"))
    back = leader.restarted(version=8)
    back.join()
    assert not back.leads
    return back, follower


def test_better_8_if_nobody_knows_that_it_leads_we_watch_the_topics() -> None:
    bench = Bench()
    leader, follower = unaware_leader(bench)

    bench.topic_grew("t")

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    leader.join()
    assert follower.join().generation == 2


def test_better_8_but_only_the_topics_that_the_group_reads() -> None:
    bench = Bench()
    leader, _ = unaware_leader(bench)

    bench.topic_grew("other")

    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", [None, 9])
def test_better_8_control_a_leader_that_knows_watches_itself(version: int | None) -> None:
    bench = Bench()
    leader, follower = pair(bench, metadata=subscription("t"))
    if version is not None:
        leader.restarted(version=version).join()

    bench.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.NONE


def test_better_8_a_leader_that_restarts_at_v9_after_all_knows_again() -> None:
    bench = Bench()
    leader, follower = unaware_leader(bench)
    leader.restarted(version=9).join()

    bench.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.NONE


def test_better_8_holds_over_a_restart_of_the_broker() -> None:
    bench = Bench()
    _, follower = unaware_leader(bench)
    bench.restart()

    bench.topic_grew("t")

    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_better_3_a_stranger_does_not_take_the_seat_of_a_static_member_that_is_away() -> None:
    # given a full group of two static members in a rebalance, one of them away
    bench = Bench(max_size=2)
    leader, follower = pair(bench)
    leader.join()

    # when a stranger comes
    stranger = bench.join(version=3)

    # then it is refused, and the one that was away finds its seat
    assert stranger.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert follower.restarted().join().code in (None, ErrorCode.NONE)
