"""Kafka's protocol runs without the extensions: every hook of it has a default that does nothing."""

from __future__ import annotations

import pytest

from holdfast.coordinator import coordinator
from holdfast.coordinator.classic.hooks import Hooks
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import REBALANCE_MS, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, pair, stable, synced


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> CoordinatorHarness:
    monkeypatch.setattr(coordinator, "EXTENSIONS", Hooks())
    return CoordinatorHarness()


def test_members_join_sync_commit_and_leave(harness: CoordinatorHarness) -> None:
    first, second = dynamic(harness), dynamic(harness)
    stable(first, second)

    assert first.commit(7).codes == [ErrorCode.NONE]
    assert second.leave() is ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined(first, wait_ms=0)
    synced(first)
    assert first.heartbeat() is ErrorCode.NONE
    assert harness.fetch() == {("t", 0): 7}


def test_a_static_member_restarts_without_a_rebalance(harness: CoordinatorHarness) -> None:
    leader, follower = pair(harness)

    again = follower.restarted()
    again.join()

    assert (again.generation, again.leads) == (follower.generation, False)
    assert leader.heartbeat() is ErrorCode.NONE
    assert follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_silent_member_expires_and_the_others_rebalance(harness: CoordinatorHarness) -> None:
    remains, silent = dynamic(harness, session_ms=10 * SESSION_MS), dynamic(harness)
    stable(remains, silent)

    harness.advance(SESSION_MS + 1)

    assert remains.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined(remains, wait_ms=REBALANCE_MS)
    assert len(remains.members) == 1


def test_the_last_member_that_leaves_empties_the_group(harness: CoordinatorHarness) -> None:
    member = Consumer(harness)
    stable(member)

    member.leave()

    assert harness.state() == "Empty"
    assert harness.delete() is ErrorCode.NONE
