"""While facts are being stored, and when they cannot be: nothing is lost, nothing doubled, nothing half done."""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import STORAGE_FAILED, Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, synced


def test_nobody_hears_of_a_generation_before_it_is_stored() -> None:
    bench = Bench()
    bench.hold()
    handle = bench.join(instance="A")
    bench.advance(1_000)
    assert handle.parked

    bench.release()

    assert handle.generation == 1


def test_a_generation_that_cannot_be_stored_never_was() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.fail_appends()
    handles = [leader.join(), follower.join()]

    assert [handle.code for handle in handles] == [STORAGE_FAILED] * 2
    assert bench.generation() == 1
    assert [handle.member_id for handle in handles] == [leader.id, follower.id]
    again = [leader.join(), follower.join()]
    assert [handle.generation for handle in again] == [2, 2]
    assert bench.told(EventKind.STORE_FAILED)


def test_after_a_failed_generation_those_who_do_not_return_are_not_waited_for_for_ever() -> None:
    bench = Bench()
    members = [dynamic(bench), dynamic(bench)]
    bench.fail_appends()
    for member in members:
        member.join()
    bench.advance(400)
    back = members[0].join()
    assert back.parked

    bench.advance(3_000)

    assert (back.code, len(back.reply.members)) == (ErrorCode.NONE, 1)


def test_after_a_failed_generation_a_new_member_that_waits_again_outlives_its_session() -> None:
    bench = Bench()
    patient = Consumer(bench, instance="P", session_ms=300, rebalance_ms=60_000)
    busy = Consumer(bench, instance="B", session_ms=60_000, rebalance_ms=60_000)
    bench.fail_appends()
    patient.join()
    busy.join()
    bench.advance(400)
    patient.id, busy.id = sorted((member.id for member in bench.group().roster), reverse=True)

    waiting = patient.join()
    bench.advance(5_000)

    assert waiting.parked, "who waits for us is not silent"


def test_a_restart_of_a_static_member_during_its_first_join_may_take_longer_than_a_session() -> None:
    bench = Bench()
    lone = lone_member(bench, session_ms=60_000, rebalance_ms=60_000)
    first = Consumer(bench, instance="S", session_ms=300, rebalance_ms=60_000)
    fenced = first.join()

    waiting = first.restarted().join()
    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    keep_alive(5_000, lone)

    assert waiting.parked, "who waits for us is not silent"
    lone.join()
    assert waiting.code == ErrorCode.NONE


def test_an_empty_group_that_cannot_be_stored_is_stored_later() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.fail_appends(count=3)
    assert member.leave() == ErrorCode.NONE

    assert bench.generation() == 1
    bench.advance(5_000)
    assert (bench.state(), bench.generation()) == ("Empty", 2)
    bench.restart()
    assert (bench.state(), bench.generation()) == ("Empty", 2)


def test_an_empty_group_that_cannot_be_stored_can_be_joined() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.fail_appends()
    member.leave()

    newcomer = bench.join(version=3)
    bench.advance(1_500)

    assert (newcomer.code, newcomer.generation) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("succeeds", [True, False])
def test_two_restarts_of_one_instance_while_the_first_is_being_stored(succeeds: bool) -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.hold()
    if not succeeds:
        bench.fail_appends()
    first, second = follower.restarted(), follower.restarted()
    handles = [first.join(), second.join()]
    assert all(handle.parked for handle in handles)

    bench.release()

    first.take()
    second.take()
    assert handles[0].code == (ErrorCode.NONE if succeeds else STORAGE_FAILED)
    assert (handles[1].code, second.sync().reply.assignment) == (ErrorCode.NONE, b"\x02")
    if succeeds:
        assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("api", ["heartbeat", "sync", "commit", "leave", "join"])
@pytest.mark.parametrize("succeeds", [True, False])
def test_the_old_process_asks_while_the_new_one_is_being_stored(api: str, succeeds: bool) -> None:
    bench = Bench()
    _, follower = pair(bench)
    bench.hold()
    if not succeeds:
        bench.fail_appends()
    follower.restarted().join()
    asked = {
        "heartbeat": lambda: bench.heartbeat_later(follower.id, 1, instance="F"),
        "sync": follower.sync,
        "commit": lambda: follower.commit(1),
        "leave": lambda: bench.leave((follower.id, "F")),
        "join": follower.join,
    }[api]()
    assert asked.parked

    bench.release()

    code = asked.codes[0] if api in ("commit", "leave") else asked.code
    assert code == (ErrorCode.NONE if not succeeds else ErrorCode.FENCED_INSTANCE_ID)


def test_a_session_that_ends_while_the_disk_is_slow_ends_after_it() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.advance(2_000)
    leader.heartbeat()
    bench.hold()
    committed = leader.commit(5)

    bench.advance(1_500)
    assert bench.state() == "Stable", "the group waits for the disk"
    bench.release()

    assert committed.codes == [ErrorCode.NONE]
    assert bench.state() == "PreparingRebalance"
    assert bench.heartbeat(follower.id, 1, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_waited_for_the_disk_counts() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.advance(2_000)
    leader.heartbeat()
    bench.hold()
    leader.commit(5)
    waiting = bench.heartbeat_later(follower.id, 1, instance="F")
    bench.advance(1_500)  # its session ends while the heartbeat waits

    bench.release()

    assert waiting.code == ErrorCode.NONE
    assert bench.state() == "Stable"


@pytest.mark.parametrize("succeeds", [True, False])
def test_joins_that_come_while_a_generation_is_being_stored(succeeds: bool) -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.hold()
    if not succeeds:
        bench.fail_appends()
    leader.join()
    follower.join()
    late = bench.join(instance="late")
    again = follower.join()

    bench.release()
    follower.take()

    if succeeds:
        assert again.parked or again.code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert late.parked
    assert bench.state() == "PreparingRebalance"
    bench.advance(1_500)
    assert late.code == ErrorCode.NONE


def test_the_leader_leaves_while_its_assignment_is_being_stored() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    waiting = follower.sync()
    bench.hold()
    assigned = leader.sync(follower)
    left = bench.leave(("", "L"))

    bench.release()

    assert [assigned.code, waiting.code, *left.codes] == [ErrorCode.NONE] * 3
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().reply.leader == follower.id


def test_deletions_that_wait_for_each_other() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.hold()

    handles = [bench.delete_later() for _ in range(3)]
    bench.release()

    assert [handle.reply for handle in handles] == [ErrorCode.NONE] + [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_a_topic_is_deleted_while_its_offset_is_being_committed() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.hold()
    bench.commit({("t", 0): 2})
    bench.topics_deleted("t")

    bench.release()

    assert bench.fetch() == {}


def test_one_slow_group_holds_up_no_other() -> None:
    bench = Bench()
    slow, quick = dynamic(bench, group="slow"), dynamic(bench, group="quick")
    stable(slow)
    stable(quick)
    bench.hold()
    slow.commit(1)

    assert quick.heartbeat() == ErrorCode.NONE


def test_failures_in_a_row_end_in_a_working_group() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.fail_appends(count=7)
    for _ in range(10):
        for member in (leader, follower):
            member.join()
        bench.advance(100)
        for member in (leader, follower):
            member.take()
        if bench.state() == "CompletingRebalance" and leader.joining is None and follower.joining is None:
            break

    synced(leader, follower)
    assert bench.state() == "Stable"
