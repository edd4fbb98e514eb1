"""What a member says beyond Kafka, to a coordinator that understands it; and that it says nothing of it elsewhere."""

from __future__ import annotations

import pytest

from holdfast.membership.effects import (
    AssignmentFailed,
    Channel,
    Failed,
    JoinComplete,
    JoinPrepare,
    LeaderElected,
    LeftGroup,
)
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import JOIN_GROUP, LEAVE_GROUP, MINE, SYNC_GROUP, MemberHarness, joined

GENERATION = 3
EPOCH = 3_000_000
GROWN = {MINE: b"mine, and more", "another": b"another's, and more"}
WHY = "cached metadata has changed"


def leading(*, extensions: bool = True, **settings: object) -> MemberHarness:
    """A member that leads, and has what it gave itself."""
    harness = MemberHarness(extensions=extensions, **settings)
    harness.start()
    lead(harness)
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine", assignment_epoch=EPOCH if extensions else -1))
    harness.event(JoinComplete)
    return harness


def lead(harness: MemberHarness, generation: int = GENERATION) -> None:
    harness.answer(JOIN_GROUP, joined(generation))
    harness.event(LeaderElected)
    harness.do("assignment_ready", generation, {MINE: b"mine"}, harness.now)


def fails(harness: MemberHarness, generation: int = GENERATION) -> None:
    """It is made the leader, and its assignor fails."""
    harness.answer(JOIN_GROUP, joined(generation))
    harness.event(LeaderElected)
    harness.do("report_assignment_failure", generation, 1, "the assignor 'mine' raised KeyError", harness.now)


# -- the epoch ---------------------------------------------------------------------------------------------------------


def test_the_epoch_is_asked_for_and_comes_with_the_assignment() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    assert harness.request(SYNC_GROUP).wants_epoch

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x", assignment_epoch=EPOCH))
    assert harness.event(JoinComplete).epoch == EPOCH


def test_another_broker_is_not_asked_and_there_is_none() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    request = harness.request(SYNC_GROUP)
    assert (request.wants_epoch, request.resync_from_epoch, request.failure) == (False, -1, None)

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x"))
    assert harness.event(JoinComplete).epoch is None


def test_a_version_without_room_for_it_is_not_asked() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    assert not harness.request(SYNC_GROUP, version=3).wants_epoch


def test_after_a_move_to_a_broker_without_extensions_none_is_used() -> None:
    harness = leading()
    harness.heartbeat(ErrorCode.NOT_COORDINATOR)
    harness.extensions = False
    harness.pass_time(1_000)
    harness.find_coordinator()
    harness.do("rejoin", WHY, harness.now)
    harness.prepare()
    harness.answer(JOIN_GROUP, joined(GENERATION + 1, leader="somebody-else"))

    assert not harness.request(SYNC_GROUP).wants_epoch


# -- a targeted rejoin -------------------------------------------------------------------------------------------------


def test_a_follower_asked_to_rejoin_gets_its_assignment_in_the_same_generation() -> None:
    # given a follower
    harness = MemberHarness(extensions=True)
    harness.stable(GENERATION)

    # when it is asked to rejoin, and only its assignment has changed
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"more", assignment_epoch=EPOCH + 1))

    # then it has it, with the newer epoch
    adopted = harness.event(JoinComplete)
    assert (adopted.generation_id, adopted.assignment, adopted.epoch) == (GENERATION, b"more", EPOCH + 1)
    assert harness.phase is Phase.STABLE


# -- resync ------------------------------------------------------------------------------------------------------------


def test_a_resync_is_a_sync_with_the_epoch_it_was_worked_out_from() -> None:
    harness = leading()

    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    request = harness.request(SYNC_GROUP)
    assert (request.generation_id, request.member_id) == (GENERATION, MINE)
    assert (request.wants_epoch, request.resync_from_epoch, request.failure) == (True, EPOCH, None)
    assert {one.member_id: one.assignment for one in request.assignments} == GROWN
    assert harness.phase is Phase.STABLE


def test_what_the_leader_gets_by_it_comes_quietly() -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)
    mark = len(harness.history)

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=GROWN[MINE], assignment_epoch=EPOCH + 1))

    adopted = harness.event(JoinComplete)
    assert (adopted.is_resync, adopted.is_leader) == (True, True)
    assert (adopted.generation_id, adopted.assignment, adopted.epoch) == (GENERATION, GROWN[MINE], EPOCH + 1)
    harness.heartbeat()
    assert harness.sent_since(mark) == ["Heartbeat"]  # no join


@pytest.mark.parametrize(
    "code",
    [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_resync_that_is_refused_becomes_a_rebalance(code: ErrorCode) -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=code))

    harness.prepare()
    assert harness.request(JOIN_GROUP).reason == WHY


def test_a_resync_that_is_not_answered_becomes_a_rebalance() -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)
    lost = harness.pending(SYNC_GROUP)
    assert lost is not None

    harness.disconnect(lost.channel)

    harness.prepare()
    harness.pass_time(1_000)
    harness.find_coordinator()
    assert harness.request(JOIN_GROUP).reason == WHY


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_leader_that_learns_from_it_that_it_was_removed_starts_over(code: ErrorCode) -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=code))

    assert harness.event(JoinPrepare).lost


def test_a_leader_that_is_fenced_by_it_ends() -> None:
    harness = leading(group_instance_id="i")
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))

    assert harness.event(Failed).failure.kind is FailureKind.FENCED


def test_a_coordinator_that_moved_meanwhile_is_looked_for_and_joined() -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))

    harness.prepare()
    harness.pass_time(1_000)
    harness.find_coordinator()
    assert harness.pending(JOIN_GROUP) is not None


def test_the_answer_to_a_resync_means_nothing_once_a_rebalance_has_begun() -> None:
    # given a resync on its way, and a rebalance of which the leader learns first
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)
    resync = harness.pending(SYNC_GROUP)
    assert resync is not None
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    # when it is answered after all
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=GROWN[MINE], assignment_epoch=EPOCH + 1))

    # then the join goes on, and nothing was adopted
    harness.prepare()
    assert harness.events == []
    assert harness.pending(JOIN_GROUP) is not None


def test_without_extensions_a_resync_is_a_rebalance() -> None:
    harness = leading(extensions=False)

    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.prepare()
    assert harness.pending(SYNC_GROUP) is None
    assert harness.request(JOIN_GROUP).reason == WHY


def test_while_the_coordinator_is_looked_for_a_resync_is_a_rebalance() -> None:
    harness = leading()
    harness.heartbeat(ErrorCode.NOT_COORDINATOR)

    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.prepare()
    assert harness.phase is Phase.JOINING


def test_a_resync_of_an_older_generation_does_nothing() -> None:
    harness = leading()

    harness.do("resync", GENERATION - 1, EPOCH, GROWN, WHY, harness.now)

    assert harness.events == [] and harness.pending(SYNC_GROUP) is None


def test_a_second_resync_before_the_first_is_answered_is_a_rebalance() -> None:
    harness = leading()
    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.do("resync", GENERATION, EPOCH, GROWN, WHY, harness.now)

    harness.prepare()
    assert harness.pending(JOIN_GROUP) is not None


# -- the assignor fails ------------------------------------------------------------------------------------------------


def test_a_leader_whose_assignor_fails_says_so_and_joins_again() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()

    fails(harness)

    request = harness.request(SYNC_GROUP)
    assert request.assignments == []
    assert request.failure == AssignmentFailure(1, "the assignor 'mine' raised KeyError")
    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=request.failure))
    assert harness.events == []  # it knows
    assert harness.pending(JOIN_GROUP) is None
    harness.pass_time(100)
    assert harness.request(JOIN_GROUP).member_id == MINE


def test_then_it_can_follow_another_leader() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    fails(harness)
    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    harness.pass_time(100)

    harness.answer(JOIN_GROUP, joined(GENERATION + 1, leader="somebody-else"))

    assert harness.request(SYNC_GROUP).failure is None
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"x", assignment_epoch=EPOCH))
    assert harness.event(JoinComplete).generation_id == GENERATION + 1


def test_each_failure_waits_longer_and_the_third_in_a_row_is_the_end() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    waits = []
    for generation in (1, 2):
        fails(harness, generation)
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        began = harness.now
        while harness.pending(JOIN_GROUP) is None:
            harness.pass_time(10)
        waits.append(harness.now - began)
    assert waits == [100, 200]

    fails(harness, 3)
    assert harness.request(SYNC_GROUP).failure is not None, "the last one is reported too"
    assert harness.events == []
    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    failure = harness.event(Failed).failure
    assert failure.kind is FailureKind.ASSIGNOR and "KeyError" in failure.message
    assert harness.request(LEAVE_GROUP).members[0].member_id == MINE
    harness.answer(LEAVE_GROUP, LeaveGroupResponse())
    harness.event(LeftGroup)


def at_the_last_report(**settings: object) -> MemberHarness:
    harness = MemberHarness(extensions=True, **settings)
    harness.start()
    for generation in (1, 2):
        fails(harness, generation)
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        harness.pass_time(1_000)
    fails(harness, 3)
    return harness


def test_a_static_leader_reports_its_last_failure_and_leaves_by_both_ids() -> None:
    harness = at_the_last_report(group_instance_id="instance-1")
    assert harness.pending(LEAVE_GROUP) is None

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR
    (leaving,) = harness.request(LEAVE_GROUP).members
    assert (leaving.member_id, leaving.group_instance_id) == (MINE, "instance-1")
    harness.answer(LEAVE_GROUP, LeaveGroupResponse())
    harness.event(LeftGroup)
    assert harness.phase is Phase.CLOSED


@pytest.mark.parametrize("channel", [Channel.JOIN, Channel.COORDINATOR])
def test_a_last_report_that_is_not_answered_is_the_end_all_the_same(channel: Channel) -> None:
    harness = at_the_last_report(group_instance_id="instance-1")
    harness.pass_time(harness.member.settings.heartbeat_interval_ms)

    harness.disconnect(channel)

    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR
    harness.event(LeftGroup)
    assert harness.events == [] and harness.phase is Phase.CLOSED


def test_a_last_failure_without_a_coordinator_is_the_end_at_once() -> None:
    harness = MemberHarness(extensions=True, group_instance_id="instance-1")
    harness.start()
    for generation in (1, 2):
        fails(harness, generation)
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        harness.pass_time(1_000)
    harness.answer(JOIN_GROUP, joined(3))
    harness.event(LeaderElected)
    harness.heartbeat(ErrorCode.NOT_COORDINATOR)

    harness.do("report_assignment_failure", 3, 1, "the assignor 'mine' raised KeyError", harness.now)

    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR
    harness.event(LeftGroup)


def test_a_member_that_leaves_during_its_last_report_may_join_and_lead_again() -> None:
    harness = at_the_last_report()
    harness.do("leave", "closing", harness.now)
    harness.answer(LEAVE_GROUP, LeaveGroupResponse())
    harness.event(LeftGroup)

    harness.do("join", harness.now)
    harness.prepare()
    harness.pass_time(1_000)
    lead(harness, 7)
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))

    assert harness.event(JoinComplete).generation_id == 7


def test_a_successful_generation_resets_the_count() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    for generation in (1, 3, 5):
        fails(harness, generation)
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        harness.pass_time(200)
        harness.follow(generation + 1)
        harness.do("rejoin", WHY, harness.now)
        harness.prepare()

    assert harness.phase is Phase.JOINING


def test_without_extensions_the_first_failure_is_the_end() -> None:
    harness = MemberHarness()
    harness.start()

    fails(harness)

    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR
    assert harness.pending(SYNC_GROUP) is None
    assert harness.pending(LEAVE_GROUP) is not None


def test_a_long_message_is_cut() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION))
    harness.event(LeaderElected)

    harness.do("report_assignment_failure", GENERATION, 2, "x" * 5_000, harness.now)

    assert harness.request(SYNC_GROUP).failure == AssignmentFailure(2, "x" * 1_000)


def test_a_failure_to_lead_a_past_generation_is_ignored() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION))
    harness.event(LeaderElected)

    harness.do("report_assignment_failure", GENERATION - 1, 1, "late", harness.now)

    assert harness.phase is Phase.LEADING and harness.events == []


def test_a_report_that_is_not_answered_is_followed_by_a_join() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    fails(harness)
    lost = harness.pending(SYNC_GROUP)
    assert lost is not None

    harness.disconnect(lost.channel)

    harness.pass_time(1_000)
    harness.find_coordinator()
    assert harness.pending(JOIN_GROUP) is not None
    lead(harness, GENERATION + 1)
    assert harness.request(SYNC_GROUP).failure is None


def test_an_assignment_in_answer_to_a_report_is_none() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    fails(harness)

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b""))

    assert harness.phase is Phase.JOINING and harness.events == []


def test_a_follower_gets_the_reason_of_a_failed_generation_and_joins_again() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    failure = AssignmentFailure(1, "the assignor 'theirs' raised KeyError")
    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=failure))

    assert harness.event(AssignmentFailed) == AssignmentFailed(GENERATION, 1, failure.message)
    assert harness.pending(JOIN_GROUP) is not None


def test_control_a_rebalance_without_a_failure_reports_none() -> None:
    harness = MemberHarness(extensions=True)
    harness.start()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader="somebody-else"))

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    assert harness.events == []
    assert harness.pending(JOIN_GROUP) is not None
