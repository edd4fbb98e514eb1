"""Answers and calls that come at odd moments, or that make no sense: the member neither spins nor waits for ever."""

import pytest

from holdfast.membership.commits import Commits
from holdfast.membership.effects import CommitEnded, Failed, Left, Prepare
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.phases import Phase
from holdfast.membership.seat import Seat
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import (
    JOIN_GROUP,
    LEAVE_GROUP,
    MINE,
    OFFSET_COMMIT,
    Scene,
    commit_answer,
    joined,
    refused,
)

OFFSETS = {("t", 0): (42, None, -1)}
PATIENCE_MS = 60_000


def test_a_refused_commit_of_nobodys_does_not_cost_the_seat_that_was_taken_since() -> None:
    # given a commit without a subscription, which a loading coordinator asks to be sent again
    scene = Scene()
    number = scene.do("commit", OFFSETS, scene.now, PATIENCE_MS)
    scene.find_coordinator()
    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    scene.do("join", scene.now)
    scene.prepare()
    scene.follow(generation=3)
    scene.pass_time(1_000)

    # when it is refused, because the group has members by now
    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_MEMBER_ID))

    # then the commit failed, and the seat is as it was
    ended = scene.event(CommitEnded)
    assert ended.commit == number
    assert ended.failure is not None and ended.failure.kind is FailureKind.COMMIT_REFUSED
    assert (scene.phase, scene.member.seat.generation) == (Phase.STABLE, 3)
    assert scene.events == []


@pytest.mark.parametrize(("held", "given"), [("", ""), ("id-1", "id-2")])
def test_a_coordinator_that_never_stops_asking_for_an_id_is_asked_with_a_back_off(held: str, given: str) -> None:
    scene = Scene()
    scene.start()
    if held:
        scene.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, held))
        assert scene.waiting(JOIN_GROUP) is not None, "the first time the id is used at once"

    scene.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, given))

    assert scene.waiting(JOIN_GROUP) is None
    scene.pass_time(200)
    assert scene.request(JOIN_GROUP).member_id == given


def test_a_protocol_that_nobody_offered_is_refused_and_not_led_with() -> None:
    scene = Scene()
    scene.start()

    scene.answer(JOIN_GROUP, joined(1, protocol="made-up"))

    failure = scene.event(Failed).failure
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "made-up" in failure.message


def test_what_the_driver_finds_hopeless_ends_the_membership_once() -> None:
    scene = Scene()
    scene.stable()
    failure = Failure(FailureKind.NOT_AUTHENTICATED, "wrong password")

    scene.do("fail", failure)
    scene.do("fail", failure)
    scene.pass_time(600_000)

    assert scene.event(Failed).failure == failure
    assert scene.events == []
    assert scene.phase is Phase.OVER


def test_who_failed_to_lead_has_left_only_when_the_goodbye_was_answered() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(1))
    scene.events.clear()
    scene.do("cannot_decide", 1, "the assignor raised")
    scene.event(Failed)

    scene.do("leave", "closing", scene.now)
    assert scene.events == []

    scene.answer(LEAVE_GROUP, LeaveGroupResponse())
    scene.event(Left)


def test_looking_for_the_coordinator_is_quick_again_after_it_was_found() -> None:
    # given a coordinator that moved many times in a row, and then stayed
    scene = Scene(retry_backoff_ms=100, retry_backoff_max_ms=10_000)
    scene.stable()
    for _ in range(6):
        scene.heartbeat(ErrorCode.NOT_COORDINATOR)
        scene.pass_time(10_000)
        scene.find_coordinator()
    assert scene.member._search.failures == 6
    scene.heartbeat()

    # when it moves once more
    scene.heartbeat(ErrorCode.NOT_COORDINATOR)

    # then it is looked for as soon as the first time
    assert scene.member.wake_at(scene.now) - scene.now == 100


def test_a_seat_lost_while_the_application_prepares_is_told_and_the_older_answer_does_not_count() -> None:
    scene = Scene()
    scene.stable()
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    older = scene.event(Prepare)
    scene.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)

    scene.do("prepared", older.number, [("range", b"")], scene.now)

    assert scene.waiting(JOIN_GROUP) is None
    newer = scene.event(Prepare)
    assert newer.lost and newer.number > older.number
    scene.do("prepared", newer.number, [("range", b"")], scene.now)
    assert scene.request(JOIN_GROUP).member_id == ""


def test_a_batch_takes_the_commits_of_one_seat_in_order_and_leaves_the_others() -> None:
    commits = Commits()
    for number in range(3):
        commits.add(Seat(1, MINE), {("t", 0): (number, None, -1)}, 9)
    commits.add(Seat(2, MINE), {("t", 0): (7, None, -1)}, 9)

    seat, offsets = commits.next_batch()

    assert (seat.generation, offsets) == (1, {("t", 0): (2, None, -1)})
    assert [commit.number for commit in commits.sent] == [1, 2, 3]
    assert [commit.number for commit in commits.waiting] == [4]
