"""Heartbeats, sessions, the application's own pace, and the coordinator that moves."""

import itertools

import pytest

from holdfast.membership.effects import Channel, ConnectCoordinator, Failed, JoinPrepare, LeaderElected
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.heartbeat import HeartbeatResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    MINE,
    SYNC_GROUP,
    MemberHarness,
    coordinator_at,
    joined,
)


def test_a_stable_member_heartbeats_at_its_interval() -> None:
    harness = MemberHarness(heartbeat_interval_ms=3_000)
    harness.stable(generation=4)

    for _ in range(3):
        harness.pass_time(2_999)
        assert harness.pending(HEARTBEAT) is None
        harness.pass_time(1)
        beat = harness.request(HEARTBEAT)
        assert (beat.generation_id, beat.member_id) == (4, MINE)
        harness.heartbeat()


def test_no_heartbeat_and_no_poll_timeout_while_a_join_is_pending() -> None:
    harness = MemberHarness(session_timeout_ms=10_000)
    harness.stable()
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    mark = len(harness.history)

    harness.member.polled(harness.now)
    harness.pass_time(60_000)

    assert harness.sent_since(mark) == []
    assert harness.pending(JOIN_GROUP) is not None


def test_heartbeats_go_on_between_join_and_sync() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3))
    harness.event(LeaderElected)

    harness.pass_time(3_000)

    assert harness.request(HEARTBEAT).generation_id == 3


def test_a_member_in_a_rebalance_heartbeats_until_it_joins_with_the_same_id() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.pending(JOIN_GROUP) is None
    harness.prepare()

    join = harness.request(JOIN_GROUP)
    assert (join.member_id, join.reason) == (MINE, "group is already rebalancing")


def test_a_rebalance_reported_before_the_sync_is_no_news() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3, leader="other"))

    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)

    assert harness.phase is Phase.SYNCING
    assert harness.pending(SYNC_GROUP) is not None


def test_a_fenced_heartbeat_is_the_end() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable()

    harness.heartbeat(ErrorCode.FENCED_INSTANCE_ID)

    failure = harness.event(Failed).failure
    assert failure.kind is FailureKind.FENCED
    assert MINE in failure.message
    harness.pass_time(600_000)
    assert not harness.sent


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_found_again_without_a_rejoin(code: ErrorCode) -> None:
    harness = MemberHarness()
    harness.stable()
    mark = len(harness.history)

    harness.heartbeat(code)
    harness.pass_time(1_000)
    harness.find_coordinator()
    harness.heartbeat()

    assert "JoinGroup" not in harness.sent_since(mark)
    assert harness.phase is Phase.STABLE
    assert not harness.events


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,  # the one that brought the generation about which it has now
    ],
)
def test_an_answer_for_a_generation_that_was_left_behind_is_ignored(code: ErrorCode) -> None:
    harness = MemberHarness()
    harness.stable(generation=1)
    harness.pass_time(3_000)
    assert harness.request(HEARTBEAT).generation_id == 1
    harness.do("rejoin", "because", harness.now)
    harness.prepare()
    harness.follow(generation=2)

    harness.answer(HEARTBEAT, HeartbeatResponse(error_code=code))

    assert harness.phase is Phase.STABLE
    assert harness.member.generation.generation_id == 2
    assert not harness.events


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, MINE)]
)
def test_a_lost_generation_loses_the_partitions_and_keeps_only_a_valid_id(code: ErrorCode, member_id: str) -> None:
    harness = MemberHarness()
    harness.stable()

    harness.heartbeat(code)
    harness.prepare(lost=True)

    assert harness.request(JOIN_GROUP).member_id == member_id


def test_a_session_without_an_answer_makes_the_member_look_for_another_coordinator() -> None:
    harness = MemberHarness(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, request_timeout_ms=60_000)
    harness.stable()

    harness.pass_time(11_000)

    assert harness.member.coordinator is None
    assert harness.pending(FIND_COORDINATOR) is not None
    assert harness.phase is Phase.STABLE, "it still has its generation, as far as it knows"


def test_a_broken_connection_costs_a_lookup_but_not_the_generation() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.pass_time(3_000)

    harness.disconnect(Channel.COORDINATOR)
    harness.pass_time(200)
    harness.find_coordinator()

    assert harness.request(HEARTBEAT).member_id == MINE
    assert not harness.events


def test_the_search_backs_off_while_the_coordinator_is_unknown() -> None:
    harness = MemberHarness(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    harness.do("join", harness.now)
    harness.tick()
    asked = []
    for _ in range(6):
        asked.append(harness.now)
        harness.answer(FIND_COORDINATOR, coordinator_at(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        harness.pass_time(harness.member.wake_at(harness.now) - harness.now)

    assert [later - earlier for earlier, later in itertools.pairwise(asked)] == [100, 200, 400, 800, 1_000]


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again() -> None:
    harness = MemberHarness()
    harness.do("join", harness.now)
    harness.event(JoinPrepare)
    harness.tick()
    harness.answer(FIND_COORDINATOR, coordinator_at())
    harness.event(ConnectCoordinator)

    harness.do("coordinator_unreachable", harness.now)
    harness.pass_time(100)

    assert harness.pending(FIND_COORDINATOR) is not None


def test_poll_timeout_makes_a_dynamic_member_leave_and_rejoin_with_a_new_id() -> None:
    harness = MemberHarness(max_poll_interval_ms=5_000, heartbeat_interval_ms=3_000)
    harness.stable()

    harness.pass_time(3_000)
    harness.heartbeat()
    harness.pass_time(2_000)
    leave = harness.request(LEAVE_GROUP)
    assert [(one.member_id, one.reason) for one in leave.members] == [(MINE, "consumer poll timeout has expired.")]
    assert harness.phase is Phase.POLL_EXPIRED
    harness.pass_time(60_000)
    assert harness.pending(HEARTBEAT) is None

    harness.do("polled", harness.now)
    harness.prepare(lost=True)
    harness.tick()
    join = harness.request(JOIN_GROUP)
    assert (join.member_id, join.reason) == ("", "consumer poll timeout has expired.")


def test_poll_timeout_makes_a_static_member_stop_heartbeating_without_leaving() -> None:
    harness = MemberHarness(max_poll_interval_ms=5_000, group_instance_id="instance-1")
    harness.stable()
    mark = len(harness.history)

    harness.pass_time(5_000)
    harness.sent.clear()
    harness.pass_time(60_000)
    assert "LeaveGroup" not in harness.sent_since(mark)
    assert harness.sent_since(mark).count("Heartbeat") == 1

    harness.do("polled", harness.now)
    harness.prepare(lost=True)
    harness.tick()
    join = harness.request(JOIN_GROUP)
    assert (join.member_id, join.group_instance_id) == ("", "instance-1")


def test_an_application_that_polls_in_time_stays_a_member() -> None:
    harness = MemberHarness(max_poll_interval_ms=5_000, heartbeat_interval_ms=3_000)
    harness.stable()

    for _ in range(10):
        harness.pass_time(3_000)
        harness.heartbeat()
        harness.do("polled", harness.now)

    assert harness.phase is Phase.STABLE
    assert "LeaveGroup" not in harness.history
