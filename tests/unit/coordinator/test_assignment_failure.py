"""A leader that cannot assign says so."""

from __future__ import annotations

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions.assignment_failure import MAX_BACKOFF_MS
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import REBALANCE, partitions, worker
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, joined, synced

FAILURE = AssignmentFailure(1, "the assignor raised ValueError: no")


def two(harness: CoordinatorHarness) -> tuple[Consumer, Consumer]:
    leader, follower = worker(harness, "L", 0), worker(harness, "F", 1)
    joined(leader, follower)
    assert leader.leads
    return leader, follower


def test_all_are_sent_back_to_join_and_another_leads() -> None:
    harness = CoordinatorHarness()
    leader, follower = two(harness)
    plain = follower.sync()

    reported = leader.sync_with(failure=FAILURE)

    assert plain.code is REBALANCE
    assert plain.reply.failure is None
    assert (reported.code, reported.reply.failure) == (REBALANCE, FAILURE)
    assert harness.events_of(EventKind.ASSIGNMENT_FAILED)[0].cause == Cause(
        CauseCode.ASSIGNOR_ERROR, count=1, detail="the assignor raised ValueError: no"
    )
    assert leader.join().is_pending
    assert follower.join().is_pending
    harness.advance(100)
    leader.take()
    follower.take()
    assert follower.leads
    synced(leader, follower)
    assert partitions(leader.sync_with()) == {0}


def test_members_that_can_read_it_get_the_reason_of_the_failure() -> None:
    harness = CoordinatorHarness()
    leader, follower = two(harness)
    asked = follower.sync_with(wants_epoch=True)

    leader.sync_with(failure=FAILURE)

    assert (asked.code, asked.reply.failure) == (REBALANCE, FAILURE)


def test_the_rounds_back_off_as_long_as_they_go_wrong() -> None:
    harness = CoordinatorHarness()
    only = worker(harness, "L", 0)
    joined(only)
    waits = []
    for _ in range(12):
        only.sync_with(failure=FAILURE)
        began = harness.now
        handle = only.join()
        while handle.is_pending:
            harness.advance(50)
        only.take()
        waits.append(harness.now - began)
    # The last ones end with the join phase, whose time is up before.
    assert waits[:4] == [100, 200, 400, 800]
    assert max(waits) <= MAX_BACKOFF_MS

    only.sync()
    only.join()
    only.take()
    assert only.sync_with(failure=FAILURE).code is REBALANCE
    again = only.join()
    harness.advance(100)
    assert again.code is ErrorCode.NONE


def test_a_follower_has_nothing_to_report() -> None:
    harness = CoordinatorHarness()
    leader, follower = two(harness)

    waiting = follower.sync_with(failure=FAILURE)
    assert waiting.is_pending
    leader.sync(follower)

    assert waiting.code is ErrorCode.NONE
    assert not harness.events_of(EventKind.ASSIGNMENT_FAILED)


def test_a_failed_leader_is_remembered_while_it_is_a_member() -> None:
    """One that fails, goes and comes back under another id, in a loop, must not fill the memory."""
    harness = CoordinatorHarness()
    stays = worker(harness, "S", 0, session_ms=600_000, rebalance_ms=600_000)
    joined(stays)
    stays.sync_with(failure=FAILURE)

    for _ in range(20):
        fails = worker(harness, None, 1, session_ms=600_000, rebalance_ms=600_000)
        fails.join()
        stays.join()
        harness.advance(MAX_BACKOFF_MS)
        fails.take()
        stays.take()
        assert fails.leads, "one that has not failed yet is preferred"
        fails.sync_with(failure=FAILURE)
        assert harness.group().failed_leaders == {stays.id, fails.id}
        fails.leave()
    assert harness.group().failed_leaders == {stays.id}

    again = stays.restarted()
    again.join()
    assert not harness.group().failed_leaders
