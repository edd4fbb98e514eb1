"""Joining and syncing: the id handshake, leading and following, and what each refusal leads to."""

import pytest

from holdfast.membership.effects import Channel, Failed, JoinComplete, JoinPrepare, LeaderElected
from holdfast.membership.failures import FailureKind
from holdfast.membership.generation import NO_GENERATION
from holdfast.membership.phases import Phase
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import JOIN_GROUP, MINE, SYNC_GROUP, MemberHarness, joined, refused


def test_the_id_that_came_with_member_id_required_is_used_in_the_next_join() -> None:
    harness = MemberHarness()
    harness.start()
    assert harness.request(JOIN_GROUP).member_id == ""

    harness.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    assert harness.request(JOIN_GROUP).member_id == "given-id"
    assert not harness.member.generation.is_valid
    assert not harness.events, "the application is not asked to prepare twice"


def test_a_follower_syncs_without_assignments_and_adopts_what_it_is_given() -> None:
    harness = MemberHarness()
    harness.start()

    harness.answer(JOIN_GROUP, joined(3, leader="somebody-else"))
    sync = harness.request(SYNC_GROUP)
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01mine"))

    assert (sync.generation_id, sync.member_id, sync.assignments) == (3, MINE, [])
    assert (sync.protocol_type, sync.protocol_name) == ("consumer", "range")
    adopted = harness.event(JoinComplete)
    assert (adopted.generation_id, adopted.assignment, adopted.is_leader) == (3, b"\x00\x01mine", False)
    assert harness.phase is Phase.STABLE


def test_a_leader_decides_before_it_syncs() -> None:
    harness = MemberHarness()
    harness.start()
    others = [JoinGroupResponseMember(MINE, None, b"a"), JoinGroupResponseMember("other", "i", b"b")]

    harness.answer(JOIN_GROUP, joined(3, members=others))
    lead = harness.event(LeaderElected)
    assert harness.pending(SYNC_GROUP) is None
    harness.do("assignment_ready", 3, {MINE: b"\x00\x01", "other": b"\x00\x02"}, harness.now)

    assert (lead.generation_id, lead.protocol, lead.members, lead.skip_assignment) == (3, "range", others, False)
    assignments = {entry.member_id: entry.assignment for entry in harness.request(SYNC_GROUP).assignments}
    assert assignments == {MINE: b"\x00\x01", "other": b"\x00\x02"}


def test_a_leader_that_gets_skip_assignment_reports_it_and_sends_nothing() -> None:
    harness = MemberHarness(group_instance_id="i")
    harness.start()

    harness.answer(JOIN_GROUP, joined(3, skip=True))
    lead = harness.event(LeaderElected)
    harness.do("assignment_ready", 3, {}, harness.now)

    assert lead.skip_assignment
    assert harness.request(SYNC_GROUP).assignments == []


def test_a_decision_for_a_generation_that_is_gone_is_not_sent() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3))
    harness.event(LeaderElected)
    harness.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    harness.prepare(lost=True)
    harness.answer(JOIN_GROUP, joined(4))
    harness.event(LeaderElected)

    harness.do("assignment_ready", 3, {MINE: b"\x00\x01"}, harness.now)

    assert harness.pending(SYNC_GROUP) is None
    assert harness.phase is Phase.LEADING


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_a_fatal_join_error_closes_the_member(code: ErrorCode) -> None:
    harness = MemberHarness()
    harness.start()

    harness.answer(JOIN_GROUP, refused(code))

    failure = harness.event(Failed).failure
    assert failure.code is code
    assert code.name in failure.message
    assert harness.phase is Phase.CLOSED
    harness.pass_time(600_000)
    assert not harness.sent


@pytest.mark.parametrize("api", [JOIN_GROUP, SYNC_GROUP])
def test_a_fenced_instance_is_the_end_and_the_failure_names_it(api: object) -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.start()

    if api is JOIN_GROUP:
        harness.answer(JOIN_GROUP, refused(ErrorCode.FENCED_INSTANCE_ID))
    else:
        harness.answer(JOIN_GROUP, joined(3, leader="other"))
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, assignment=b""))

    failure = harness.event(Failed).failure
    assert failure.kind is FailureKind.FENCED
    assert "'instance-1'" in failure.message
    assert "'orders'" in failure.message


def test_an_unknown_member_joins_again_as_a_new_one() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    harness.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    assert harness.request(JOIN_GROUP).member_id == ""
    assert not harness.events, "it had nothing to lose"


def test_an_unknown_member_loses_its_partitions_before_it_joins_again() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()

    harness.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    assert harness.pending(JOIN_GROUP) is None
    harness.prepare(lost=True)
    assert harness.request(JOIN_GROUP).member_id == ""


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_join_that_comes_too_early_is_tried_again_after_a_pause(code: ErrorCode) -> None:
    harness = MemberHarness(retry_backoff_ms=100)
    harness.start()

    harness.answer(JOIN_GROUP, refused(code))
    assert harness.pending(JOIN_GROUP) is None
    harness.pass_time(99)
    assert harness.pending(JOIN_GROUP) is None
    harness.pass_time(1)

    assert harness.pending(JOIN_GROUP) is not None


def test_a_sync_that_the_rebalance_overtook_joins_again_with_the_same_id() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3, leader="other"))

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))

    assert harness.request(JOIN_GROUP).member_id == MINE
    assert not harness.events


def test_a_sync_with_an_old_generation_keeps_the_member_id() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3, leader="other"))

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION, assignment=b""))
    harness.prepare(lost=True)

    assert harness.request(JOIN_GROUP).member_id == MINE


def test_a_sync_of_an_unknown_member_drops_the_member_id() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3, leader="other"))

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, assignment=b""))
    harness.prepare(lost=True)

    assert harness.request(JOIN_GROUP).member_id == ""


def test_a_join_whose_connection_breaks_is_followed_by_one_with_the_same_id() -> None:
    harness = MemberHarness()
    harness.stable(generation=2)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()

    harness.disconnect(Channel.JOIN)
    harness.pass_time(1_000)
    harness.find_coordinator()

    assert harness.request(JOIN_GROUP).member_id == MINE
    assert not harness.events, "nothing was lost"


def test_a_join_waits_longer_than_the_rebalance_may_take() -> None:
    harness = MemberHarness(max_poll_interval_ms=300_000, request_timeout_ms=30_000)
    harness.start()

    send = harness.pending(JOIN_GROUP)

    assert send is not None
    assert send.timeout_ms >= 305_000
    assert harness.request(JOIN_GROUP).rebalance_timeout_ms == 300_000


def test_a_join_waits_at_least_as_long_as_any_request() -> None:
    harness = MemberHarness(max_poll_interval_ms=1_000, request_timeout_ms=30_000)
    harness.start()

    send = harness.pending(JOIN_GROUP)

    assert send is not None
    assert send.timeout_ms == 30_000


def test_a_join_answered_for_another_protocol_type_is_the_end() -> None:
    harness = MemberHarness()
    harness.start()

    harness.answer(JOIN_GROUP, joined(3, protocol_type="connect"))

    assert harness.event(Failed).failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "roundrobin")])
def test_a_sync_answered_for_another_protocol_is_the_end(kind: str, name: str) -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3, leader="other"))

    harness.answer(SYNC_GROUP, SyncGroupResponse(protocol_type=kind, protocol_name=name, assignment=b"\x00\x01"))

    assert harness.event(Failed).failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_reason_is_cut_and_forgotten_after_a_sync() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.do("rejoin", "x" * 300, harness.now)
    harness.prepare()

    assert harness.request(JOIN_GROUP).reason == "x" * 255
    assert harness.request(JOIN_GROUP, 7).reason is None, "older versions have no field for it"

    harness.follow(generation=2)
    harness.do("join", harness.now)
    harness.prepare()
    assert harness.request(JOIN_GROUP).reason == "subscription has changed"


def test_the_first_join_gives_no_reason() -> None:
    harness = MemberHarness()
    harness.start()
    assert harness.request(JOIN_GROUP).reason == ""


def test_a_rejoin_that_is_wanted_while_a_join_is_parked_follows_it() -> None:
    harness = MemberHarness()
    harness.start()
    harness.do("rejoin", "cached metadata has changed", harness.now)

    harness.follow(generation=2)

    harness.prepare()
    assert harness.request(JOIN_GROUP).member_id == MINE


def test_a_failing_assignor_makes_a_dynamic_member_leave() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, joined(3))
    harness.event(LeaderElected)

    harness.do("assignment_failed", 3, "the assignor 'mine' raised KeyError")

    assert harness.history[-1] == "LeaveGroup"
    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR


def test_a_failing_assignor_does_not_remove_a_static_member() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.start()
    harness.answer(JOIN_GROUP, joined(3))
    harness.event(LeaderElected)

    harness.do("assignment_failed", 3, "the assignor 'mine' raised KeyError")

    assert "LeaveGroup" not in harness.history
    assert harness.event(Failed).failure.kind is FailureKind.ASSIGNOR


def test_a_broker_without_instance_ids_is_refused_in_one_sentence() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.do("join", harness.now)
    harness.prepare()
    harness.tick()

    harness.find_coordinator(join_versions=(0, 4))

    failure = harness.event(Failed).failure
    assert failure.kind is FailureKind.UNSUPPORTED
    assert "'instance-1'" in failure.message
    assert "static.membership.fallback=dynamic" in failure.message
    assert "JoinGroup" not in harness.history


def test_or_joined_without_the_instance_id_if_the_settings_say_so() -> None:
    harness = MemberHarness(group_instance_id="instance-1", fall_back_to_dynamic=True)
    harness.do("join", harness.now)
    harness.prepare()
    harness.tick()

    harness.find_coordinator(join_versions=(0, 4))

    assert harness.request(JOIN_GROUP, 4).group_instance_id is None


def test_join_prepare_is_repeated_if_the_generation_is_lost_meanwhile() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    first = harness.event(JoinPrepare)
    assert not first.lost

    harness.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    harness.do("join_prepared", first.attempt, [], harness.now)
    assert harness.pending(JOIN_GROUP) is None, "the answer to the first question is no answer to the second"
    harness.prepare(lost=True)

    assert harness.request(JOIN_GROUP).member_id == ""
    assert harness.member.generation == NO_GENERATION
