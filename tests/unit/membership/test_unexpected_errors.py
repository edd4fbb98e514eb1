"""Unexpected responses and calls: the member neither spins nor waits for ever."""

import pytest

from holdfast.membership.effects import CommitCompleted, Failed, JoinPrepare, LeftGroup
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.generation import Generation
from holdfast.membership.pending_commits import PendingCommits
from holdfast.membership.phases import Phase
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import (
    JOIN_GROUP,
    LEAVE_GROUP,
    MINE,
    OFFSET_COMMIT,
    MemberHarness,
    commit_answer,
    joined,
    refused,
)

OFFSETS = {("t", 0): (42, None, -1)}
PATIENCE_MS = 60_000


def test_a_refused_commit_without_a_generation_does_not_reset_a_newer_one() -> None:
    # given a commit without a subscription, which a loading coordinator asks to be sent again
    harness = MemberHarness()
    number = harness.do("commit", OFFSETS, harness.now, PATIENCE_MS)
    harness.find_coordinator()
    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    harness.do("join", harness.now)
    harness.prepare()
    harness.follow(generation=3)
    harness.pass_time(1_000)

    # when it is refused, because the group has members by now
    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_MEMBER_ID))

    # then the commit failed, and the generation is as it was
    ended = harness.event(CommitCompleted)
    assert ended.commit_id == number
    assert ended.failure is not None and ended.failure.kind is FailureKind.COMMIT_REFUSED
    assert (harness.phase, harness.member.generation.generation_id) == (Phase.STABLE, 3)
    assert harness.events == []


@pytest.mark.parametrize(("held", "given"), [("", ""), ("id-1", "id-2")])
def test_a_coordinator_that_never_stops_asking_for_an_id_is_asked_with_a_back_off(held: str, given: str) -> None:
    harness = MemberHarness()
    harness.start()
    if held:
        harness.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, held))
        assert harness.pending(JOIN_GROUP) is not None, "the first time the id is used at once"

    harness.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, given))

    assert harness.pending(JOIN_GROUP) is None
    harness.pass_time(200)
    assert harness.request(JOIN_GROUP).member_id == given


def test_a_protocol_that_was_not_offered_is_refused_and_not_led_with() -> None:
    harness = MemberHarness()
    harness.start()

    harness.answer(JOIN_GROUP, joined(1, protocol="made-up"))

    failure = harness.event(Failed).failure
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "made-up" in failure.message


def test_what_the_driver_finds_hopeless_ends_the_membership_once() -> None:
    harness = MemberHarness()
    harness.stable()
    failure = Failure(FailureKind.NOT_AUTHENTICATED, "wrong password")

    harness.do("fail", failure)
    harness.do("fail", failure)
    harness.pass_time(600_000)

    assert harness.event(Failed).failure == failure
    assert harness.events == []
    assert harness.phase is Phase.CLOSED


def test_a_leader_that_failed_has_left_only_when_the_leave_was_answered() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(1))
    harness.events.clear()
    harness.do("assignment_failed", 1, "the assignor raised")
    harness.event(Failed)

    harness.do("leave", "closing", harness.now)
    assert harness.events == []

    harness.answer(LEAVE_GROUP, LeaveGroupResponse())
    harness.event(LeftGroup)


def test_looking_for_the_coordinator_is_quick_again_after_it_was_found() -> None:
    # given a coordinator that moved many times in a row, and then stayed
    harness = MemberHarness(retry_backoff_ms=100, retry_backoff_max_ms=10_000)
    harness.stable()
    for _ in range(6):
        harness.heartbeat(ErrorCode.NOT_COORDINATOR)
        harness.pass_time(10_000)
        harness.find_coordinator()
    assert harness.member._discovery.backoff.failures == 6
    harness.heartbeat()

    # when it moves once more
    harness.heartbeat(ErrorCode.NOT_COORDINATOR)

    # then it is looked for as soon as the first time
    assert harness.member.wake_at(harness.now) - harness.now == 100


def test_a_generation_lost_during_join_prepare_is_reported_and_the_old_reply_ignored() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    older = harness.event(JoinPrepare)
    harness.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)

    harness.do("join_prepared", older.attempt, [("range", b"")], harness.now)

    assert harness.pending(JOIN_GROUP) is None
    newer = harness.event(JoinPrepare)
    assert newer.lost and newer.attempt > older.attempt
    harness.do("join_prepared", newer.attempt, [("range", b"")], harness.now)
    assert harness.request(JOIN_GROUP).member_id == ""


def test_a_batch_takes_the_commits_of_one_generation_in_order_and_leaves_the_others() -> None:
    commits = PendingCommits()
    for number in range(3):
        commits.add(Generation(1, MINE), {("t", 0): (number, None, -1)}, 9)
    commits.add(Generation(2, MINE), {("t", 0): (7, None, -1)}, 9)

    generation, offsets = commits.next_batch()

    assert (generation.generation_id, offsets) == (1, {("t", 0): (2, None, -1)})
    assert [commit.commit_id for commit in commits.sent] == [1, 2, 3]
    assert [commit.commit_id for commit in commits.queued] == [4]
