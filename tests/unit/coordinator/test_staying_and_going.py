"""Heartbeats, sessions and LeaveGroup: §6.J and §6.K of the group semantics, by number.

Not here: the second half of 127 (another broker's group): there is only one broker.
"""

from __future__ import annotations

import logging

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable

# -- 6.J heartbeats and sessions ---------------------------------------------------------------------------------------


def test_j126_unknown_group_unknown_member_empty_group() -> None:
    bench = Bench()
    assert bench.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    member = lone_member(bench)
    assert bench.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    member.leave()
    assert (bench.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


def test_j127_a_group_that_dies_while_the_heartbeat_waits() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.hold()
    bench.delete_later()
    waiting = bench.heartbeat_later("x", 1)
    bench.release()

    assert waiting.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("off_by", [1, -1])
def test_j130_a_wrong_generation(off_by: int) -> None:
    bench = Bench()
    member = lone_member(bench)

    assert bench.heartbeat(member.id, 1 + off_by) == ErrorCode.ILLEGAL_GENERATION


def test_j131_a_silent_member_is_gone_after_its_session() -> None:
    bench = Bench()
    member = lone_member(bench)

    bench.advance(2_999)
    assert bench.state() == "Stable"
    bench.advance(1)

    assert (bench.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)
    assert [event.member_id for event in bench.told(EventKind.SESSION_EXPIRED)] == [member.id]


def test_j131_control_a_beating_member_stays() -> None:
    bench = Bench()
    member = lone_member(bench)

    for _ in range(10):
        bench.advance(2_999)
        assert member.heartbeat() == ErrorCode.NONE


def test_j132_while_the_assignment_is_awaited_a_heartbeat_is_good() -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)

    assert member.heartbeat() == ErrorCode.NONE


def test_j134_heartbeats_keep_a_member_through_the_join_phase_until_the_rebalance_timeout() -> None:
    bench = Bench()
    member = lone_member(bench, session_ms=500)
    newcomer = dynamic(bench)
    handle = newcomer.join()

    for _ in range(5):
        bench.advance(250)
        assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(249)
    assert handle.parked
    bench.advance(1)

    assert handle.code == ErrorCode.NONE
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_j135_a_member_that_falls_silent_in_the_join_phase_is_not_waited_for() -> None:
    bench = Bench()
    lone_member(bench, session_ms=500, rebalance_ms=60_000)
    newcomer = dynamic(bench)
    handle = newcomer.join()

    bench.advance(499)
    assert handle.parked
    bench.advance(1)

    assert (handle.code, handle.generation, len(handle.reply.members)) == (ErrorCode.NONE, 2, 1)


def test_j136_who_waits_for_us_is_not_silent() -> None:
    bench = Bench()
    leader = Consumer(bench, session_ms=60_000, rebalance_ms=20_000)
    follower = Consumer(bench, session_ms=500, rebalance_ms=20_000)
    stable(leader, follower)
    follower.metadata = b"changed"

    waiting = follower.join()
    keep_alive(10_000, leader)

    assert waiting.parked, "twenty of its sessions have passed"
    assert leader.join().code == waiting.code == ErrorCode.NONE


def test_j136_after_the_wait_the_session_runs_again() -> None:
    bench = Bench()
    leader = Consumer(bench, session_ms=60_000, rebalance_ms=60_000)
    follower = Consumer(bench, session_ms=500, rebalance_ms=60_000)
    joined(leader, follower)
    waiting = follower.sync()
    keep_alive(5_000, leader)
    assert waiting.parked
    leader.sync(follower)
    assert waiting.code == ErrorCode.NONE

    bench.advance(499)
    assert bench.state() == "Stable"
    bench.advance(1)

    assert bench.state() == "PreparingRebalance"


def test_j136_who_is_sent_away_from_a_wait_has_a_whole_session() -> None:
    bench = Bench()
    leader = Consumer(bench, session_ms=60_000, rebalance_ms=60_000)
    follower = Consumer(bench, session_ms=1_000, rebalance_ms=60_000)
    joined(leader, follower)
    waiting = follower.sync()
    bench.advance(1_900)
    leader.leave()
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS

    bench.advance(999)
    assert follower.id in bench.group().roster
    bench.advance(1)

    assert bench.state() == "Empty"


def test_j136_a_follower_that_rejoins_unchanged_shows_that_it_is_alive() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.advance(2_000)
    leader.heartbeat()
    follower.join()

    bench.advance(2_000)

    assert bench.state() == "Stable"


def test_j137_heartbeats_of_another_generation_keep_nobody_alive() -> None:
    bench = Bench()
    member = lone_member(bench)

    for _ in range(30):
        bench.advance(100)
        bench.heartbeat(member.id, 7)

    assert bench.state() == "Empty"


def test_j138_answers_while_the_journal_is_read() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.restart(only_load=True)

    assert member.heartbeat() == ErrorCode.NONE
    assert member.sync().code == ErrorCode.REBALANCE_IN_PROGRESS
    own = bench.sync(member.id, member.generation, wants_epoch=True)
    assert own.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Holdfast's own client sends it again"
    assert member.join().code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.commit(1).codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert bench.leave((member.id, None)).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.describe().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.coordinator.list_groups([], []) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert bench.delete() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.delete_offsets(("t", 0)).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.fetch_later().reply[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    bench.finish_loading()
    assert member.heartbeat() == ErrorCode.NONE


# -- 6.K leaving -------------------------------------------------------------------------------------------------------


def test_k140_no_such_group() -> None:
    left = Bench().leave(("x", None), ("", "A"))

    assert (left.code, left.codes) == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)


@pytest.mark.parametrize("version", range(3))
def test_k140_before_v3_the_one_result_is_the_answer(version: int) -> None:
    assert Bench().leave(("x", None), version=version).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_k142_an_empty_group_id() -> None:
    assert Bench().leave(("x", None), group="").code == ErrorCode.INVALID_GROUP_ID


def test_k143_a_group_that_dies_while_the_leave_waits() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.hold()
    bench.delete_later()
    waiting = bench.leave(("x", None))
    bench.release()

    assert (waiting.code, waiting.reply.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


@pytest.mark.parametrize("version", range(6))
def test_k144_a_dynamic_member_leaves(version: int) -> None:
    bench = Bench()
    member = lone_member(bench)

    left = bench.leave((member.id, None), version=version)

    assert (left.code, bench.state()) == (ErrorCode.NONE, "Empty")


def test_k147_with_a_wrong_member_id_it_stays() -> None:
    bench = Bench()
    member = lone_member(bench, instance="X")

    left = bench.leave(("some_member", "X"))

    assert (left.code, left.codes) == (ErrorCode.NONE, [ErrorCode.FENCED_INSTANCE_ID])
    assert member.heartbeat() == ErrorCode.NONE


def test_k149_an_administrator_removes_both_by_instance_id() -> None:
    bench = Bench()
    pair(bench)

    left = bench.leave(("", "L"), ("", "F"))

    assert left.codes == [ErrorCode.NONE] * 2
    assert [(entry.member_id, entry.group_instance_id) for entry in left.reply.members] == [("", "L"), ("", "F")]
    assert bench.state() == "Empty"


def test_k150_a_batch_is_one_rebalance() -> None:
    bench = Bench()
    members = [Consumer(bench, instance=name) for name in "ABCD"]
    stable(*members)
    started = len(bench.told(EventKind.REBALANCE_STARTED))

    bench.leave(("", "B"), ("", "C"), ("", "D"))

    assert len(bench.told(EventKind.REBALANCE_STARTED)) == started + 1
    assert members[0].join().generation == 2


def test_k151_one_bad_entry_does_not_stop_the_others() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    assert bench.leave(("", "unknown"), ("", "F")).codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_k151_the_same_entry_twice() -> None:
    bench = Bench()
    pair(bench)

    assert bench.leave(("", "F"), ("", "F")).codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_k152_a_pending_id_after_an_unknown_instance() -> None:
    bench = Bench()
    lone_member(bench)
    pending = bench.join().member_id

    assert bench.leave(("", "unknown"), (pending, None)).codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert bench.join(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_k153_the_join_phase_no_longer_waits_for_a_pending_id_that_left() -> None:
    bench = Bench()
    member = lone_member(bench, rebalance_ms=60_000)
    pending = bench.join(session_ms=60_000).member_id
    handle = member.join()
    assert handle.parked

    bench.leave((pending, None))

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_k154_a_member_a_pending_id_and_a_stranger() -> None:
    bench = Bench()
    member = lone_member(bench)
    pending = bench.join().member_id

    left = bench.leave((member.id, None), (pending, None), ("stranger", None))

    assert left.codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.state() == "Empty"


def test_k155_a_dynamic_member_with_an_unknown_instance_id() -> None:
    bench = Bench()
    member = lone_member(bench)

    assert bench.leave((member.id, "unknown")).codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert member.heartbeat() == ErrorCode.NONE


def test_k156_who_left_is_unknown() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.leave()

    assert member.join().code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance_id", [None, ""])
def test_an_entry_with_neither_id_is_logged_with_its_sender(
    caplog: pytest.LogCaptureFixture, instance_id: str | None
) -> None:
    bench = Bench()
    lone_member(bench)

    with caplog.at_level(logging.WARNING):
        left = bench.leave(("", instance_id))

    assert left.codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert "/127.0.0.1" in caplog.text


def test_many_entries_with_neither_id_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        left = Bench().leave(("", None), ("", ""), ("x", None), ("", "A"), ("", ""))

    assert len(left.codes) == 5
    (line,) = caplog.records
    assert "3 of 5 entries name neither" in line.getMessage()


def test_control_a_member_that_joined_with_an_empty_instance_id_is_named_by_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.join(instance="")

    with caplog.at_level(logging.WARNING):
        left = bench.leave(("", ""))

    assert (left.codes, caplog.records) == ([ErrorCode.NONE], [])
