"""Heartbeats, sessions and LeaveGroup. The numbers are those of the behaviours in `tests/conformance`.

Not here: the second half of 127 (another broker's group): there is only one broker.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable

# -- heartbeats and sessions -------------------------------------------------------------------------------------------


def test_unknown_group_unknown_member_empty_group() -> None:
    harness = CoordinatorHarness()
    assert harness.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    member = lone_member(harness)
    assert harness.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID

    member.leave()
    assert (harness.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_group_that_dies_while_the_heartbeat_waits() -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.pause_appends()
    harness.delete_later()
    waiting = harness.heartbeat_later("x", 1)
    harness.resume_appends()

    assert waiting.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("off_by", [1, -1])
def test_a_wrong_generation(off_by: int) -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    assert harness.heartbeat(member.id, 1 + off_by) == ErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_is_gone_after_its_session() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    harness.advance(2_999)
    assert harness.state() == "Stable"
    harness.advance(1)

    assert (harness.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)
    assert [event.member_id for event in harness.events_of(EventKind.SESSION_EXPIRED)] == [member.id]


def test_control_a_beating_member_stays() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    for _ in range(10):
        harness.advance(2_999)
        assert member.heartbeat() == ErrorCode.NONE


def test_while_the_assignment_is_awaited_a_heartbeat_is_good() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)

    assert member.heartbeat() == ErrorCode.NONE


def test_heartbeats_keep_a_member_through_the_join_phase_until_the_rebalance_timeout() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, session_ms=500)
    newcomer = dynamic(harness)
    handle = newcomer.join()

    for _ in range(5):
        harness.advance(250)
        assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    harness.advance(249)
    assert handle.is_pending
    harness.advance(1)

    assert handle.code == ErrorCode.NONE
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_in_the_join_phase_is_not_waited_for() -> None:
    harness = CoordinatorHarness()
    lone_member(harness, session_ms=500, rebalance_ms=60_000)
    newcomer = dynamic(harness)
    handle = newcomer.join()

    harness.advance(499)
    assert handle.is_pending
    harness.advance(1)

    assert (handle.code, handle.generation, len(handle.reply.members)) == (ErrorCode.NONE, 2, 1)


def test_a_parked_join_keeps_the_session_alive() -> None:
    harness = CoordinatorHarness()
    leader = Consumer(harness, session_ms=60_000, rebalance_ms=20_000)
    follower = Consumer(harness, session_ms=500, rebalance_ms=20_000)
    stable(leader, follower)
    follower.metadata = b"changed"

    waiting = follower.join()
    keep_alive(10_000, leader)

    assert waiting.is_pending, "twenty of its sessions have passed"
    assert leader.join().code == waiting.code == ErrorCode.NONE


def test_after_the_wait_the_session_runs_again() -> None:
    harness = CoordinatorHarness()
    leader = Consumer(harness, session_ms=60_000, rebalance_ms=60_000)
    follower = Consumer(harness, session_ms=500, rebalance_ms=60_000)
    joined(leader, follower)
    waiting = follower.sync()
    keep_alive(5_000, leader)
    assert waiting.is_pending
    leader.sync(follower)
    assert waiting.code == ErrorCode.NONE

    harness.advance(499)
    assert harness.state() == "Stable"
    harness.advance(1)

    assert harness.state() == "PreparingRebalance"


def test_a_full_session_begins_when_a_pending_sync_fails() -> None:
    harness = CoordinatorHarness()
    leader = Consumer(harness, session_ms=60_000, rebalance_ms=60_000)
    follower = Consumer(harness, session_ms=1_000, rebalance_ms=60_000)
    joined(leader, follower)
    waiting = follower.sync()
    harness.advance(1_900)
    leader.leave()
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS

    harness.advance(999)
    assert follower.id in harness.group().members
    harness.advance(1)

    assert harness.state() == "Empty"


def test_a_follower_that_rejoins_unchanged_shows_that_it_is_alive() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.advance(2_000)
    leader.heartbeat()
    follower.join()

    harness.advance(2_000)

    assert harness.state() == "Stable"


def test_heartbeats_of_another_generation_do_not_extend_the_session() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    for _ in range(30):
        harness.advance(100)
        harness.heartbeat(member.id, 7)

    assert harness.state() == "Empty"


def test_responses_while_the_group_log_is_loading() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.restart(only_load=True)

    assert member.heartbeat() == ErrorCode.NONE
    assert member.sync().code == ErrorCode.REBALANCE_IN_PROGRESS
    own = harness.sync(member.id, member.generation, wants_epoch=True)
    assert own.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Holdfast's own client sends it again"
    assert member.join().code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert member.commit(1).codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert harness.leave((member.id, None)).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.describe().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.coordinator.list_groups([], []) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert harness.delete() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.delete_offsets(("t", 0)).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.fetch_later().reply[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    harness.finish_loading()
    assert member.heartbeat() == ErrorCode.NONE


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_no_such_group() -> None:
    left = CoordinatorHarness().leave(("x", None), ("", "A"))

    assert (left.code, left.codes) == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)


@pytest.mark.parametrize("version", range(3))
def test_before_v3_the_one_result_is_the_answer(version: int) -> None:
    assert CoordinatorHarness().leave(("x", None), version=version).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_id() -> None:
    assert CoordinatorHarness().leave(("x", None), group="").code == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_dies_while_the_leave_waits() -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.pause_appends()
    harness.delete_later()
    waiting = harness.leave(("x", None))
    harness.resume_appends()

    assert (waiting.code, waiting.reply.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


@pytest.mark.parametrize("version", range(6))
def test_a_dynamic_member_leaves(version: int) -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    left = harness.leave((member.id, None), version=version)

    assert (left.code, harness.state()) == (ErrorCode.NONE, "Empty")


def test_with_a_wrong_member_id_it_stays() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, instance="X")

    left = harness.leave(("some_member", "X"))

    assert (left.code, left.codes) == (ErrorCode.NONE, [ErrorCode.FENCED_INSTANCE_ID])
    assert member.heartbeat() == ErrorCode.NONE


def test_an_administrator_removes_both_by_instance_id() -> None:
    harness = CoordinatorHarness()
    pair(harness)

    left = harness.leave(("", "L"), ("", "F"))

    assert left.codes == [ErrorCode.NONE] * 2
    assert [(entry.member_id, entry.group_instance_id) for entry in left.reply.members] == [("", "L"), ("", "F")]
    assert harness.state() == "Empty"


def test_a_batch_is_one_rebalance() -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, instance=name) for name in "ABCD"]
    stable(*members)
    started = len(harness.events_of(EventKind.REBALANCE_STARTED))

    harness.leave(("", "B"), ("", "C"), ("", "D"))

    assert len(harness.events_of(EventKind.REBALANCE_STARTED)) == started + 1
    assert members[0].join().generation == 2


def test_one_bad_entry_does_not_stop_the_others() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    assert harness.leave(("", "unknown"), ("", "F")).codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_same_entry_twice() -> None:
    harness = CoordinatorHarness()
    pair(harness)

    assert harness.leave(("", "F"), ("", "F")).codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_pending_id_after_an_unknown_instance() -> None:
    harness = CoordinatorHarness()
    lone_member(harness)
    pending = harness.join().member_id

    assert harness.leave(("", "unknown"), (pending, None)).codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert harness.join(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_no_longer_waits_for_a_pending_id_that_left() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, rebalance_ms=60_000)
    pending = harness.join(session_ms=60_000).member_id
    handle = member.join()
    assert handle.is_pending

    harness.leave((pending, None))

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_a_member_a_pending_id_and_an_unknown_id_leave_together() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    pending = harness.join().member_id

    left = harness.leave((member.id, None), (pending, None), ("unknown", None))

    assert left.codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.state() == "Empty"


def test_a_dynamic_member_with_an_unknown_instance_id() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    assert harness.leave((member.id, "unknown")).codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert member.heartbeat() == ErrorCode.NONE


def test_a_member_that_left_is_unknown() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.leave()

    assert member.join().code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance_id", [None, ""])
def test_an_entry_with_neither_id_is_logged_with_its_sender(instance_id: str | None) -> None:
    harness = CoordinatorHarness()
    lone_member(harness)

    left = harness.leave(("", instance_id))

    assert left.codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    (warning,) = harness.warnings
    assert "/127.0.0.1" in warning


def test_many_entries_with_neither_id_are_one_line_of_the_log() -> None:
    harness = CoordinatorHarness()

    left = harness.leave(("", None), ("", ""), ("x", None), ("", "A"), ("", ""))

    assert len(left.codes) == 5
    (warning,) = harness.warnings
    assert "3 of 5 entries name neither" in warning


def test_control_a_member_that_joined_with_an_empty_instance_id_is_named_by_it() -> None:
    harness = CoordinatorHarness()
    harness.join(instance="")

    left = harness.leave(("", ""))

    assert (left.codes, harness.warnings) == ([ErrorCode.NONE], [])
