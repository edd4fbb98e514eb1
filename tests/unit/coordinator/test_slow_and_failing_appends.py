"""While facts are being stored, and when they cannot be: nothing is lost, nothing doubled, nothing half done."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import connection
from tests.unit.coordinator.harness import SESSION_MS, STORAGE_FAILED, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, synced


def test_no_member_learns_of_a_generation_before_it_is_stored() -> None:
    harness = CoordinatorHarness()
    harness.pause_appends()
    handle = harness.join(instance="A")
    harness.advance(1_000)
    assert handle.is_pending

    harness.resume_appends()

    assert handle.generation == 1


def test_a_generation_that_cannot_be_stored_never_was() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.fail_appends()
    handles = [leader.join(), follower.join()]

    assert [handle.code for handle in handles] == [STORAGE_FAILED] * 2
    assert harness.generation() == 1
    assert [handle.member_id for handle in handles] == [leader.id, follower.id]
    again = [leader.join(), follower.join()]
    assert [handle.generation for handle in again] == [2, 2]
    assert harness.events_of(EventKind.STORE_FAILED)


def test_after_a_failed_generation_members_that_do_not_rejoin_are_removed() -> None:
    harness = CoordinatorHarness()
    members = [dynamic(harness), dynamic(harness)]
    harness.fail_appends()
    for member in members:
        member.join()
    harness.advance(400)
    back = members[0].join()
    assert back.is_pending

    harness.advance(3_000)

    assert (back.code, len(back.reply.members)) == (ErrorCode.NONE, 1)


def test_after_a_failed_generation_a_new_member_may_wait_past_its_session() -> None:
    harness = CoordinatorHarness()
    patient = Consumer(harness, instance="P", session_ms=300, rebalance_ms=60_000)
    busy = Consumer(harness, instance="B", session_ms=60_000, rebalance_ms=60_000)
    harness.fail_appends()
    patient.join()
    busy.join()
    harness.advance(400)
    patient.id, busy.id = sorted((member.id for member in harness.group().members), reverse=True)

    waiting = patient.join()
    harness.advance(5_000)

    assert waiting.is_pending, "who waits for us is not silent"


def test_a_static_member_restarted_in_its_first_join_may_wait_past_its_session() -> None:
    harness = CoordinatorHarness()
    lone = lone_member(harness, session_ms=60_000, rebalance_ms=60_000)
    first = Consumer(harness, instance="S", session_ms=300, rebalance_ms=60_000)
    fenced = first.join()

    waiting = first.restarted().join()
    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    keep_alive(5_000, lone)

    assert waiting.is_pending, "who waits for us is not silent"
    lone.join()
    assert waiting.code == ErrorCode.NONE


def test_an_empty_group_that_cannot_be_stored_is_stored_later() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.fail_appends(count=3)
    assert member.leave() == ErrorCode.NONE

    assert harness.generation() == 1
    harness.advance(5_000)
    assert (harness.state(), harness.generation()) == ("Empty", 2)
    harness.restart()
    assert (harness.state(), harness.generation()) == ("Empty", 2)


def test_an_empty_group_that_cannot_be_stored_can_be_joined() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.fail_appends()
    member.leave()

    newcomer = harness.join(version=3)
    harness.advance(1_500)

    assert (newcomer.code, newcomer.generation) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("succeeds", [True, False])
def test_two_restarts_of_one_instance_while_the_first_is_being_stored(succeeds: bool) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.pause_appends()
    if not succeeds:
        harness.fail_appends()
    first, second = follower.restarted(), follower.restarted()
    handles = [first.join(), second.join()]
    assert all(handle.is_pending for handle in handles)

    harness.resume_appends()

    first.take()
    second.take()
    assert handles[0].code == (ErrorCode.NONE if succeeds else STORAGE_FAILED)
    assert (handles[1].code, second.sync().reply.assignment) == (ErrorCode.NONE, b"\x02")
    if succeeds:
        assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("api", ["sync", "commit", "leave", "join"])
@pytest.mark.parametrize("succeeds", [True, False])
def test_the_old_process_asks_while_the_new_one_is_being_stored(api: str, succeeds: bool) -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    harness.pause_appends()
    if not succeeds:
        harness.fail_appends()
    follower.restarted().join()
    asked = {
        "sync": follower.sync,
        "commit": lambda: follower.commit(1),
        "leave": lambda: harness.leave((follower.id, "F")),
        "join": follower.join,
    }[api]()
    assert asked.is_pending

    harness.resume_appends()

    code = asked.codes[0] if api in ("commit", "leave") else asked.code
    assert code == (ErrorCode.NONE if not succeeds else ErrorCode.FENCED_INSTANCE_ID)


@pytest.mark.parametrize("succeeds", [True, False])
@pytest.mark.parametrize("heartbeat_from", [None, "another connection"])
def test_the_old_process_sends_a_heartbeat_while_the_new_one_is_being_stored(
    succeeds: bool, heartbeat_from: str | None
) -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    harness.pause_appends()
    if not succeeds:
        harness.fail_appends()
    follower.restarted().join()

    client = None if heartbeat_from is None else connection()
    asked = harness.heartbeat_later(follower.id, 1, instance="F", client=client)
    assert asked.is_pending == (client is not None), "a reconnected member is more than a sign of life"
    if client is None:
        assert asked.code == ErrorCode.NONE

    harness.resume_appends()
    code = harness.heartbeat(follower.id, 1, instance="F", client=client)
    assert code == (ErrorCode.NONE if not succeeds else ErrorCode.FENCED_INSTANCE_ID)


@pytest.mark.parametrize("succeeds", [True, False])
@pytest.mark.parametrize(("slow_ms", "state"), [(900, "PreparingRebalance"), (1_500, "Stable")])
def test_sessions_do_not_run_while_an_append_hangs(succeeds: bool, slow_ms: int, state: str) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.advance(SESSION_MS - 800)
    leader.heartbeat()
    harness.pause_appends()
    if not succeeds:
        harness.fail_appends()
    committed = leader.commit(5)

    harness.advance(slow_ms)
    assert harness.state() == "Stable", "the group waits for the disk"
    harness.resume_appends()

    assert committed.codes == [ErrorCode.NONE if succeeds else STORAGE_FAILED]
    assert harness.state() == state
    leader.heartbeat()
    harness.advance(900)
    assert harness.state() == "PreparingRebalance", "the control: the rest of the session has run since"
    assert harness.heartbeat(follower.id, 1, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_hanging_append_gives_no_member_more_than_one_session() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.pause_appends()
    leader.commit(5)

    harness.advance(SESSION_MS - 100)
    follower.heartbeat()
    harness.resume_appends()

    harness.advance(SESSION_MS - 100)
    leader.heartbeat()
    assert harness.state() == "Stable"
    harness.advance(200)
    assert harness.state() == "PreparingRebalance"


def test_a_heartbeat_during_a_hanging_append_counts() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.advance(2_000)
    harness.pause_appends()
    leader.commit(5)

    assert harness.heartbeat(follower.id, 1, instance="F") == ErrorCode.NONE
    harness.advance(900)
    harness.resume_appends()

    assert harness.state() == "Stable"


@pytest.mark.parametrize("succeeds", [True, False])
def test_joins_that_come_while_a_generation_is_being_stored(succeeds: bool) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.pause_appends()
    if not succeeds:
        harness.fail_appends()
    leader.join()
    follower.join()
    late = harness.join(instance="late")
    again = follower.join()

    harness.resume_appends()
    follower.take()

    if succeeds:
        assert again.is_pending or again.code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert late.is_pending
    assert harness.state() == "PreparingRebalance"
    harness.advance(1_500)
    assert late.code == ErrorCode.NONE


def test_the_leader_leaves_while_its_assignment_is_being_stored() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    waiting = follower.sync()
    harness.pause_appends()
    assigned = leader.sync(follower)
    left = harness.leave(("", "L"))

    harness.resume_appends()

    assert [assigned.code, waiting.code, *left.codes] == [ErrorCode.NONE] * 3
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().reply.leader == follower.id


def test_deletions_that_wait_for_each_other() -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.pause_appends()

    handles = [harness.delete_later() for _ in range(3)]
    harness.resume_appends()

    assert [handle.reply for handle in handles] == [ErrorCode.NONE] + [ErrorCode.GROUP_ID_NOT_FOUND] * 2


@pytest.mark.parametrize("before", [{("t", 0): 1}, {("other", 0): 1}, {}], ids=["again", "of-another", "first"])
def test_a_topic_is_deleted_while_its_offset_is_being_committed(before: dict[tuple[str, int], int]) -> None:
    harness = CoordinatorHarness()
    if before:
        harness.commit(before)
    harness.pause_appends()
    harness.commit({("t", 0): 2})
    harness.topics_deleted("t")

    harness.resume_appends()

    assert harness.fetch() == {key: offset for key, offset in before.items() if key[0] == "other"}


def test_one_slow_group_holds_up_no_other() -> None:
    harness = CoordinatorHarness()
    slow, quick = dynamic(harness, group="slow"), dynamic(harness, group="quick")
    stable(slow)
    stable(quick)
    harness.pause_appends()
    slow.commit(1)

    assert quick.heartbeat() == ErrorCode.NONE


def test_failures_in_a_row_end_in_a_working_group() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.fail_appends(count=7)
    for _ in range(10):
        for member in (leader, follower):
            member.join()
        harness.advance(100)
        for member in (leader, follower):
            member.take()
        if harness.state() == "CompletingRebalance" and leader.joining is None and follower.joining is None:
            break

    synced(leader, follower)
    assert harness.state() == "Stable"
