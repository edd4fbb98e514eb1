"""Heartbeats, sessions, the application's own pace, and the coordinator that moves (6.S)."""

import itertools

import pytest

from holdfast.membership.effects import Failed, Lane, Lead, Prepare, Reach
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.heartbeat import HeartbeatResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    MINE,
    SYNC_GROUP,
    Scene,
    coordinator_at,
    joined,
)


def test_a_stable_member_heartbeats_at_its_interval() -> None:
    scene = Scene(heartbeat_interval_ms=3_000)
    scene.stable(generation=4)

    for _ in range(3):
        scene.pass_time(2_999)
        assert scene.waiting(HEARTBEAT) is None
        scene.pass_time(1)
        beat = scene.request(HEARTBEAT)
        assert (beat.generation_id, beat.member_id) == (4, MINE)
        scene.heartbeat()


def test_no_heartbeat_while_a_join_is_parked_and_the_seat_is_not_given_up_for_that() -> None:
    scene = Scene(session_timeout_ms=10_000)
    scene.stable()
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    mark = len(scene.history)

    scene.member.polled(scene.now)
    scene.pass_time(60_000)

    assert scene.sent_since(mark) == []
    assert scene.waiting(JOIN_GROUP) is not None


def test_heartbeats_go_on_between_join_and_sync() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3))
    scene.event(Lead)

    scene.pass_time(3_000)

    assert scene.request(HEARTBEAT).generation_id == 3


def test_267_a_member_told_of_a_rebalance_heartbeats_until_it_joins_with_the_same_id() -> None:
    scene = Scene()
    scene.stable()
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert scene.waiting(JOIN_GROUP) is None
    scene.prepare()

    join = scene.request(JOIN_GROUP)
    assert (join.member_id, join.reason) == (MINE, "group is already rebalancing")


def test_a_rebalance_heard_of_before_the_sync_is_no_news() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3, leader="other"))

    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    assert scene.phase is Phase.SYNCING
    assert scene.waiting(SYNC_GROUP) is not None


def test_268_a_fenced_heartbeat_is_the_end() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable()

    scene.heartbeat(ErrorCode.FENCED_INSTANCE_ID)

    failure = scene.event(Failed).failure
    assert failure.kind is FailureKind.FENCED
    assert MINE in failure.message
    scene.pass_time(600_000)
    assert not scene.sent


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_269_a_coordinator_that_moved_is_found_again_without_a_rejoin(code: ErrorCode) -> None:
    scene = Scene()
    scene.stable()
    mark = len(scene.history)

    scene.heartbeat(code)
    scene.pass_time(1_000)
    scene.find_coordinator()
    scene.heartbeat()

    assert "JoinGroup" not in scene.sent_since(mark)
    assert scene.phase is Phase.STABLE
    assert not scene.events


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,  # the one that brought the generation about which it has now
    ],
)
def test_285_an_answer_for_a_generation_that_was_left_behind_is_ignored(code: ErrorCode) -> None:
    scene = Scene()
    scene.stable(generation=1)
    scene.pass_time(3_000)
    assert scene.request(HEARTBEAT).generation_id == 1
    scene.do("rejoin", "because", scene.now)
    scene.prepare()
    scene.follow(generation=2)

    scene.answer(HEARTBEAT, HeartbeatResponse(error_code=code))

    assert scene.phase is Phase.STABLE
    assert scene.member.seat.generation == 2
    assert not scene.events


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, MINE)]
)
def test_a_lost_seat_loses_its_partitions_and_keeps_the_id_only_if_that_was_not_in_doubt(
    code: ErrorCode, member_id: str
) -> None:
    scene = Scene()
    scene.stable()

    scene.heartbeat(code)
    scene.prepare(lost=True)

    assert scene.request(JOIN_GROUP).member_id == member_id


def test_a_session_without_an_answer_makes_the_member_look_for_another_coordinator() -> None:
    scene = Scene(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, request_timeout_ms=60_000)
    scene.stable()

    scene.pass_time(11_000)

    assert scene.member.coordinator is None
    assert scene.waiting(FIND_COORDINATOR) is not None
    assert scene.phase is Phase.STABLE, "it still has its seat, for all it knows"


def test_a_broken_connection_costs_a_search_but_not_the_seat() -> None:
    scene = Scene()
    scene.stable()
    scene.pass_time(3_000)

    scene.break_off(Lane.SIDE)
    scene.pass_time(200)
    scene.find_coordinator()

    assert scene.request(HEARTBEAT).member_id == MINE
    assert not scene.events


def test_the_search_backs_off_while_nobody_knows_the_coordinator() -> None:
    scene = Scene(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    scene.do("join", scene.now)
    scene.tick()
    asked = []
    for _ in range(6):
        asked.append(scene.now)
        scene.answer(FIND_COORDINATOR, coordinator_at(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        scene.pass_time(scene.member.wake_at(scene.now) - scene.now)

    assert [later - earlier for earlier, later in itertools.pairwise(asked)] == [100, 200, 400, 800, 1_000]


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again() -> None:
    scene = Scene()
    scene.do("join", scene.now)
    scene.event(Prepare)
    scene.tick()
    scene.answer(FIND_COORDINATOR, coordinator_at())
    scene.event(Reach)

    scene.do("unreachable", scene.now)
    scene.pass_time(100)

    assert scene.waiting(FIND_COORDINATOR) is not None


def test_278_a_dynamic_member_whose_application_stops_polling_leaves_and_comes_back_as_a_new_one() -> None:
    scene = Scene(max_poll_interval_ms=5_000, heartbeat_interval_ms=3_000)
    scene.stable()

    scene.pass_time(3_000)
    scene.heartbeat()
    scene.pass_time(2_000)
    leave = scene.request(LEAVE_GROUP)
    assert [(one.member_id, one.reason) for one in leave.members] == [(MINE, "consumer poll timeout has expired.")]
    assert scene.phase is Phase.AWAY
    scene.pass_time(60_000)
    assert scene.waiting(HEARTBEAT) is None

    scene.do("polled", scene.now)
    scene.prepare(lost=True)
    scene.tick()
    join = scene.request(JOIN_GROUP)
    assert (join.member_id, join.reason) == ("", "consumer poll timeout has expired.")


def test_278_a_static_one_stops_heartbeating_without_a_word() -> None:
    scene = Scene(max_poll_interval_ms=5_000, group_instance_id="seat-1")
    scene.stable()
    mark = len(scene.history)

    scene.pass_time(5_000)
    scene.sent.clear()
    scene.pass_time(60_000)
    assert "LeaveGroup" not in scene.sent_since(mark)
    assert scene.sent_since(mark).count("Heartbeat") == 1

    scene.do("polled", scene.now)
    scene.prepare(lost=True)
    scene.tick()
    join = scene.request(JOIN_GROUP)
    assert (join.member_id, join.group_instance_id) == ("", "seat-1")


def test_an_application_that_polls_in_time_keeps_its_seat() -> None:
    scene = Scene(max_poll_interval_ms=5_000, heartbeat_interval_ms=3_000)
    scene.stable()

    for _ in range(10):
        scene.pass_time(3_000)
        scene.heartbeat()
        scene.do("polled", scene.now)

    assert scene.phase is Phase.STABLE
    assert "LeaveGroup" not in scene.history
