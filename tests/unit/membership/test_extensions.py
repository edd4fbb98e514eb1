"""What a member says beyond Kafka, to a coordinator that understands it; and that it says nothing of it elsewhere."""

from __future__ import annotations

import pytest

from holdfast.membership.effects import Adopt, Failed, Lane, Lead, LeaderFailed, Left, Prepare
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import (
    JOIN_GROUP,
    LEAVE_GROUP,
    MINE,
    SYNC_GROUP,
    Scene,
    joined,
)

GENERATION = 3
EPOCH = 3_000_000
GROWN = {MINE: b"mine, and more", "another": b"another's, and more"}
WHY = "cached metadata has changed"


def leading(*, extensions: bool = True, **settings: object) -> Scene:
    """A member that leads, and has what it gave itself."""
    scene = Scene(extensions=extensions, **settings)
    scene.start()
    lead(scene)
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine", assignment_epoch=EPOCH if extensions else -1))
    scene.event(Adopt)
    return scene


def lead(scene: Scene, generation: int = GENERATION) -> None:
    scene.answer(JOIN_GROUP, joined(generation))
    scene.event(Lead)
    scene.do("decided", generation, {MINE: b"mine"}, scene.now)


def fails(scene: Scene, generation: int = GENERATION) -> None:
    """It is made the leader, and its assignor fails."""
    scene.answer(JOIN_GROUP, joined(generation))
    scene.event(Lead)
    scene.do("report_failure", generation, 1, "the assignor 'mine' raised KeyError", scene.now)


# -- the epoch ---------------------------------------------------------------------------------------------------------


def test_the_epoch_is_asked_for_and_comes_with_the_assignment() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    assert scene.request(SYNC_GROUP).wants_epoch

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x", assignment_epoch=EPOCH))
    assert scene.event(Adopt).epoch == EPOCH


def test_another_broker_is_not_asked_and_there_is_none() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    request = scene.request(SYNC_GROUP)
    assert (request.wants_epoch, request.resync_from_epoch, request.failure) == (False, -1, None)

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x"))
    assert scene.event(Adopt).epoch is None


def test_a_version_without_room_for_it_is_not_asked() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    assert not scene.request(SYNC_GROUP, version=3).wants_epoch


def test_when_the_coordinator_moves_to_a_broker_without_extensions_nothing_more_is_said_of_them() -> None:
    scene = leading()
    scene.heartbeat(ErrorCode.NOT_COORDINATOR)
    scene.extensions = False
    scene.pass_time(1_000)
    scene.find_coordinator()
    scene.do("rejoin", WHY, scene.now)
    scene.prepare()
    scene.answer(JOIN_GROUP, joined(GENERATION + 1, leader="somebody-else"))

    assert not scene.request(SYNC_GROUP).wants_epoch


# -- a called member ---------------------------------------------------------------------------------------------------


def test_a_called_follower_joins_the_same_generation_and_takes_its_new_share() -> None:
    # given a follower
    scene = Scene(extensions=True)
    scene.stable(GENERATION)

    # when it is called, and nothing but its share has changed
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"more", assignment_epoch=EPOCH + 1))

    # then it has it, with the newer epoch
    adopted = scene.event(Adopt)
    assert (adopted.generation, adopted.assignment, adopted.epoch) == (GENERATION, b"more", EPOCH + 1)
    assert scene.phase is Phase.STABLE


# -- resync ------------------------------------------------------------------------------------------------------------


def test_a_resync_is_a_sync_with_the_epoch_it_was_worked_out_from() -> None:
    scene = leading()

    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    request = scene.request(SYNC_GROUP)
    assert (request.generation_id, request.member_id) == (GENERATION, MINE)
    assert (request.wants_epoch, request.resync_from_epoch, request.failure) == (True, EPOCH, None)
    assert {one.member_id: one.assignment for one in request.assignments} == GROWN
    assert scene.phase is Phase.STABLE


def test_what_the_leader_gets_by_it_comes_quietly() -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)
    mark = len(scene.history)

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=GROWN[MINE], assignment_epoch=EPOCH + 1))

    adopted = scene.event(Adopt)
    assert (adopted.quiet, adopted.is_leader) == (True, True)
    assert (adopted.generation, adopted.assignment, adopted.epoch) == (GENERATION, GROWN[MINE], EPOCH + 1)
    scene.heartbeat()
    assert scene.sent_since(mark) == ["Heartbeat"]  # no join


@pytest.mark.parametrize(
    "code",
    [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_resync_that_is_refused_becomes_a_rebalance(code: ErrorCode) -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=code))

    scene.prepare()
    assert scene.request(JOIN_GROUP).reason == WHY


def test_a_resync_that_is_not_answered_becomes_a_rebalance() -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)
    lost = scene.waiting(SYNC_GROUP)
    assert lost is not None

    scene.break_off(lost.lane)

    scene.prepare()
    scene.pass_time(1_000)
    scene.find_coordinator()
    assert scene.request(JOIN_GROUP).reason == WHY


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_leader_that_is_told_by_it_that_its_seat_is_gone_starts_over(code: ErrorCode) -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=code))

    assert scene.event(Prepare).lost


def test_a_leader_that_is_fenced_by_it_ends() -> None:
    scene = leading(group_instance_id="i")
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))

    assert scene.event(Failed).failure.kind is FailureKind.FENCED


def test_a_coordinator_that_moved_meanwhile_is_looked_for_and_joined() -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))

    scene.prepare()
    scene.pass_time(1_000)
    scene.find_coordinator()
    assert scene.waiting(JOIN_GROUP) is not None


def test_the_answer_to_a_resync_means_nothing_once_a_rebalance_has_begun() -> None:
    # given a resync on its way, and a rebalance that the leader hears of first
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)
    resync = scene.waiting(SYNC_GROUP)
    assert resync is not None
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    # when it is answered after all
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=GROWN[MINE], assignment_epoch=EPOCH + 1))

    # then the join goes on, and nothing was adopted
    scene.prepare()
    assert scene.events == []
    assert scene.waiting(JOIN_GROUP) is not None


def test_without_extensions_a_resync_is_a_rebalance() -> None:
    scene = leading(extensions=False)

    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.prepare()
    assert scene.waiting(SYNC_GROUP) is None
    assert scene.request(JOIN_GROUP).reason == WHY


def test_while_the_coordinator_is_looked_for_a_resync_is_a_rebalance() -> None:
    scene = leading()
    scene.heartbeat(ErrorCode.NOT_COORDINATOR)

    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.prepare()
    assert scene.phase is Phase.JOINING


def test_a_resync_of_an_older_generation_does_nothing() -> None:
    scene = leading()

    scene.do("resync", GENERATION - 1, EPOCH, GROWN, WHY, scene.now)

    assert scene.events == [] and scene.waiting(SYNC_GROUP) is None


def test_a_second_resync_before_the_first_is_answered_is_a_rebalance() -> None:
    scene = leading()
    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.do("resync", GENERATION, EPOCH, GROWN, WHY, scene.now)

    scene.prepare()
    assert scene.waiting(JOIN_GROUP) is not None


# -- the assignor fails ------------------------------------------------------------------------------------------------


def test_a_leader_whose_assignor_fails_says_so_and_joins_again() -> None:
    scene = Scene(extensions=True)
    scene.start()

    fails(scene)

    request = scene.request(SYNC_GROUP)
    assert request.assignments == []
    assert request.failure == AssignmentFailure(1, "the assignor 'mine' raised KeyError")
    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=request.failure))
    assert scene.events == []  # it knows
    assert scene.waiting(JOIN_GROUP) is None
    scene.pass_time(100)
    assert scene.request(JOIN_GROUP).member_id == MINE


def test_then_it_can_follow_somebody_else() -> None:
    scene = Scene(extensions=True)
    scene.start()
    fails(scene)
    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    scene.pass_time(100)

    scene.answer(JOIN_GROUP, joined(GENERATION + 1, leader="somebody-else"))

    assert scene.request(SYNC_GROUP).failure is None
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x", assignment_epoch=EPOCH))
    assert scene.event(Adopt).generation == GENERATION + 1


def test_each_failure_waits_longer_and_the_third_in_a_row_is_the_end() -> None:
    scene = Scene(extensions=True)
    scene.start()
    waits = []
    for generation in (1, 2):
        fails(scene, generation)
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        began = scene.now
        while scene.waiting(JOIN_GROUP) is None:
            scene.pass_time(10)
        waits.append(scene.now - began)
    assert waits == [100, 200]

    fails(scene, 3)
    assert scene.request(SYNC_GROUP).failure is not None, "the last one is reported too"
    assert scene.events == []
    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    failure = scene.event(Failed).failure
    assert failure.kind is FailureKind.ASSIGNOR and "KeyError" in failure.message
    assert scene.request(LEAVE_GROUP).members[0].member_id == MINE
    scene.answer(LEAVE_GROUP, LeaveGroupResponse())
    scene.event(Left)


def at_the_last_report(**settings: object) -> Scene:
    scene = Scene(extensions=True, **settings)
    scene.start()
    for generation in (1, 2):
        fails(scene, generation)
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        scene.pass_time(1_000)
    fails(scene, 3)
    return scene


def test_a_static_leader_reports_its_last_failure_and_leaves_by_both_ids() -> None:
    scene = at_the_last_report(group_instance_id="seat-1")
    assert scene.waiting(LEAVE_GROUP) is None

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR
    (leaving,) = scene.request(LEAVE_GROUP).members
    assert (leaving.member_id, leaving.group_instance_id) == (MINE, "seat-1")
    scene.answer(LEAVE_GROUP, LeaveGroupResponse())
    scene.event(Left)
    assert scene.phase is Phase.OVER


@pytest.mark.parametrize("lane", [Lane.JOINS, Lane.SIDE])
def test_a_last_report_that_is_not_answered_is_the_end_all_the_same(lane: Lane) -> None:
    scene = at_the_last_report(group_instance_id="seat-1")
    scene.pass_time(scene.member.settings.heartbeat_interval_ms)

    scene.break_off(lane)

    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR
    scene.event(Left)
    assert scene.events == [] and scene.phase is Phase.OVER


def test_a_last_failure_without_a_coordinator_is_the_end_at_once() -> None:
    scene = Scene(extensions=True, group_instance_id="seat-1")
    scene.start()
    for generation in (1, 2):
        fails(scene, generation)
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        scene.pass_time(1_000)
    scene.answer(JOIN_GROUP, joined(3))
    scene.event(Lead)
    scene.heartbeat(ErrorCode.NOT_COORDINATOR)

    scene.do("report_failure", 3, 1, "the assignor 'mine' raised KeyError", scene.now)

    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR
    scene.event(Left)


def test_who_leaves_while_the_last_report_is_out_may_join_and_lead_again() -> None:
    scene = at_the_last_report()
    scene.do("leave", "closing", scene.now)
    scene.answer(LEAVE_GROUP, LeaveGroupResponse())
    scene.event(Left)

    scene.do("join", scene.now)
    scene.prepare()
    scene.pass_time(1_000)
    lead(scene, 7)
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))

    assert scene.event(Adopt).generation == 7


def test_a_good_generation_in_between_begins_the_count_anew() -> None:
    scene = Scene(extensions=True)
    scene.start()
    for generation in (1, 3, 5):
        fails(scene, generation)
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        scene.pass_time(200)
        scene.follow(generation + 1)
        scene.do("rejoin", WHY, scene.now)
        scene.prepare()

    assert scene.phase is Phase.JOINING


def test_without_extensions_the_first_failure_is_the_end() -> None:
    scene = Scene()
    scene.start()

    fails(scene)

    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR
    assert scene.waiting(SYNC_GROUP) is None
    assert scene.waiting(LEAVE_GROUP) is not None


def test_a_long_message_is_cut() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION))
    scene.event(Lead)

    scene.do("report_failure", GENERATION, 2, "x" * 5_000, scene.now)

    assert scene.request(SYNC_GROUP).failure == AssignmentFailure(2, "x" * 1_000)


def test_a_failure_to_lead_a_generation_that_is_over_is_nobodys_business() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION))
    scene.event(Lead)

    scene.do("report_failure", GENERATION - 1, 1, "late", scene.now)

    assert scene.phase is Phase.LEADING and scene.events == []


def test_a_report_that_is_not_answered_is_followed_by_a_join() -> None:
    scene = Scene(extensions=True)
    scene.start()
    fails(scene)
    lost = scene.waiting(SYNC_GROUP)
    assert lost is not None

    scene.break_off(lost.lane)

    scene.pass_time(1_000)
    scene.find_coordinator()
    assert scene.waiting(JOIN_GROUP) is not None
    lead(scene, GENERATION + 1)
    assert scene.request(SYNC_GROUP).failure is None


def test_an_assignment_in_answer_to_a_report_is_none() -> None:
    scene = Scene(extensions=True)
    scene.start()
    fails(scene)

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b""))

    assert scene.phase is Phase.JOINING and scene.events == []


def test_a_follower_is_told_why_its_generation_came_to_nothing_and_joins_again() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    failure = AssignmentFailure(1, "the assignor 'theirs' raised KeyError")
    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=failure))

    assert scene.event(LeaderFailed) == LeaderFailed(GENERATION, 1, failure.message)
    assert scene.waiting(JOIN_GROUP) is not None


def test_control_a_rebalance_without_a_failure_tells_nothing() -> None:
    scene = Scene(extensions=True)
    scene.start()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    assert scene.events == []
    assert scene.waiting(JOIN_GROUP) is not None
