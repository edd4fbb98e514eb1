"""Joining and syncing: the id handshake, leading and following, and what each refusal leads to (6.S)."""

import pytest

from holdfast.membership.effects import Adopt, Failed, Lane, Lead, Prepare
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.membership.seat import NO_SEAT
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import JOIN_GROUP, MINE, SYNC_GROUP, Scene, joined, refused


def test_262_the_id_that_came_with_member_id_required_is_used_in_the_next_join() -> None:
    scene = Scene()
    scene.start()
    assert scene.request(JOIN_GROUP).member_id == ""

    scene.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    assert scene.request(JOIN_GROUP).member_id == "given-id"
    assert not scene.member.seat.is_held
    assert not scene.events, "the application is not asked to prepare twice"


def test_a_follower_syncs_without_assignments_and_adopts_what_it_is_given() -> None:
    scene = Scene()
    scene.start()

    scene.answer(JOIN_GROUP, joined(3, leader="somebody-else"))
    sync = scene.request(SYNC_GROUP)
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01mine"))

    assert (sync.generation_id, sync.member_id, sync.assignments) == (3, MINE, [])
    assert (sync.protocol_type, sync.protocol_name) == ("consumer", "range")
    adopted = scene.event(Adopt)
    assert (adopted.generation, adopted.assignment, adopted.is_leader) == (3, b"\x00\x01mine", False)
    assert scene.phase is Phase.STABLE


def test_a_leader_decides_before_it_syncs() -> None:
    scene = Scene()
    scene.start()
    others = [JoinGroupResponseMember(MINE, None, b"a"), JoinGroupResponseMember("other", "i", b"b")]

    scene.answer(JOIN_GROUP, joined(3, members=others))
    lead = scene.event(Lead)
    assert scene.waiting(SYNC_GROUP) is None
    scene.do("decided", 3, {MINE: b"\x00\x01", "other": b"\x00\x02"}, scene.now)

    assert (lead.generation, lead.protocol, lead.members, lead.skip) == (3, "range", others, False)
    shares = {entry.member_id: entry.assignment for entry in scene.request(SYNC_GROUP).assignments}
    assert shares == {MINE: b"\x00\x01", "other": b"\x00\x02"}


def test_a_leader_that_is_told_to_skip_says_so_to_the_application_and_sends_nothing() -> None:
    scene = Scene(group_instance_id="i")
    scene.start()

    scene.answer(JOIN_GROUP, joined(3, skip=True))
    lead = scene.event(Lead)
    scene.do("decided", 3, {}, scene.now)

    assert lead.skip
    assert scene.request(SYNC_GROUP).assignments == []


def test_a_decision_for_a_generation_that_is_gone_is_not_sent() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3))
    scene.event(Lead)
    scene.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    scene.prepare(lost=True)
    scene.answer(JOIN_GROUP, joined(4))
    scene.event(Lead)

    scene.do("decided", 3, {MINE: b"\x00\x01"}, scene.now)

    assert scene.waiting(SYNC_GROUP) is None
    assert scene.phase is Phase.LEADING


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
def test_264_a_refusal_that_waiting_does_not_mend_is_the_end(code: ErrorCode) -> None:
    scene = Scene()
    scene.start()

    scene.answer(JOIN_GROUP, refused(code))

    failure = scene.event(Failed).failure
    assert failure.code is code
    assert code.name in failure.message
    assert scene.phase is Phase.OVER
    scene.pass_time(600_000)
    assert not scene.sent


@pytest.mark.parametrize("api", [JOIN_GROUP, SYNC_GROUP])
def test_a_fenced_instance_is_the_end_and_the_failure_names_it(api: object) -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.start()

    if api is JOIN_GROUP:
        scene.answer(JOIN_GROUP, refused(ErrorCode.FENCED_INSTANCE_ID))
    else:
        scene.answer(JOIN_GROUP, joined(3, leader="other"))
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, assignment=b""))

    failure = scene.event(Failed).failure
    assert failure.kind is FailureKind.FENCED
    assert "'seat-1'" in failure.message
    assert "'orders'" in failure.message


def test_an_unknown_member_joins_again_as_a_new_one() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    scene.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    assert scene.request(JOIN_GROUP).member_id == ""
    assert not scene.events, "it had nothing to lose"


def test_an_unknown_member_that_held_a_seat_loses_what_it_had_before_it_joins_again() -> None:
    scene = Scene()
    scene.stable()
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()

    scene.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    assert scene.waiting(JOIN_GROUP) is None
    scene.prepare(lost=True)
    assert scene.request(JOIN_GROUP).member_id == ""


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_join_that_comes_too_early_is_tried_again_after_a_pause(code: ErrorCode) -> None:
    scene = Scene(retry_backoff_ms=100)
    scene.start()

    scene.answer(JOIN_GROUP, refused(code))
    assert scene.waiting(JOIN_GROUP) is None
    scene.pass_time(99)
    assert scene.waiting(JOIN_GROUP) is None
    scene.pass_time(1)

    assert scene.waiting(JOIN_GROUP) is not None


def test_a_sync_that_the_rebalance_overtook_joins_again_with_the_same_id() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3, leader="other"))

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))

    assert scene.request(JOIN_GROUP).member_id == MINE
    assert not scene.events


def test_a_sync_with_an_old_generation_keeps_the_member_id() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3, leader="other"))

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION, assignment=b""))
    scene.prepare(lost=True)

    assert scene.request(JOIN_GROUP).member_id == MINE


def test_a_sync_of_an_unknown_member_drops_the_member_id() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3, leader="other"))

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, assignment=b""))
    scene.prepare(lost=True)

    assert scene.request(JOIN_GROUP).member_id == ""


def test_270_a_join_whose_connection_breaks_is_followed_by_one_with_the_same_id() -> None:
    scene = Scene()
    scene.stable(generation=2)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()

    scene.break_off(Lane.JOINS)
    scene.pass_time(1_000)
    scene.find_coordinator()

    assert scene.request(JOIN_GROUP).member_id == MINE
    assert not scene.events, "nothing was lost"


def test_283_a_join_waits_longer_than_the_rebalance_may_take() -> None:
    scene = Scene(max_poll_interval_ms=300_000, request_timeout_ms=30_000)
    scene.start()

    send = scene.waiting(JOIN_GROUP)

    assert send is not None
    assert send.timeout_ms >= 305_000
    assert scene.request(JOIN_GROUP).rebalance_timeout_ms == 300_000


def test_283_and_at_least_as_long_as_any_request() -> None:
    scene = Scene(max_poll_interval_ms=1_000, request_timeout_ms=30_000)
    scene.start()

    send = scene.waiting(JOIN_GROUP)

    assert send is not None
    assert send.timeout_ms == 30_000


def test_284_a_join_answered_for_another_protocol_type_is_the_end() -> None:
    scene = Scene()
    scene.start()

    scene.answer(JOIN_GROUP, joined(3, protocol_type="connect"))

    assert scene.event(Failed).failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "roundrobin")])
def test_284_a_sync_answered_for_another_protocol_is_the_end(kind: str, name: str) -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3, leader="other"))

    scene.answer(SYNC_GROUP, SyncGroupResponse(protocol_type=kind, protocol_name=name, assignment=b"\x00\x01"))

    assert scene.event(Failed).failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_279_the_reason_is_cut_and_forgotten_after_a_sync() -> None:
    scene = Scene()
    scene.stable()
    scene.do("rejoin", "x" * 300, scene.now)
    scene.prepare()

    assert scene.request(JOIN_GROUP).reason == "x" * 255
    assert scene.request(JOIN_GROUP, 7).reason is None, "older versions have no field for it"

    scene.follow(generation=2)
    scene.do("join", scene.now)
    scene.prepare()
    assert scene.request(JOIN_GROUP).reason == "subscription has changed"


def test_the_first_join_gives_no_reason() -> None:
    scene = Scene()
    scene.start()
    assert scene.request(JOIN_GROUP).reason == ""


def test_a_rejoin_that_is_wanted_while_a_join_is_parked_follows_it() -> None:
    scene = Scene()
    scene.start()
    scene.do("rejoin", "cached metadata has changed", scene.now)

    scene.follow(generation=2)

    scene.prepare()
    assert scene.request(JOIN_GROUP).member_id == MINE


def test_a_failing_assignor_ends_a_dynamic_member_with_a_goodbye() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, joined(3))
    scene.event(Lead)

    scene.do("cannot_decide", 3, "the assignor 'mine' raised KeyError")

    assert scene.history[-1] == "LeaveGroup"
    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR


def test_a_failing_assignor_of_a_static_member_keeps_the_seat() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.start()
    scene.answer(JOIN_GROUP, joined(3))
    scene.event(Lead)

    scene.do("cannot_decide", 3, "the assignor 'mine' raised KeyError")

    assert "LeaveGroup" not in scene.history
    assert scene.event(Failed).failure.kind is FailureKind.ASSIGNOR


def test_a_broker_without_instance_ids_is_refused_in_one_sentence() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.do("join", scene.now)
    scene.prepare()
    scene.tick()

    scene.find_coordinator(join_versions=(0, 4))

    failure = scene.event(Failed).failure
    assert failure.kind is FailureKind.UNSUPPORTED
    assert "'seat-1'" in failure.message
    assert "static.membership.fallback=dynamic" in failure.message
    assert "JoinGroup" not in scene.history


def test_or_joined_without_the_instance_id_if_the_settings_say_so() -> None:
    scene = Scene(group_instance_id="seat-1", fall_back_to_dynamic=True)
    scene.do("join", scene.now)
    scene.prepare()
    scene.tick()

    scene.find_coordinator(join_versions=(0, 4))

    assert scene.request(JOIN_GROUP, 4).group_instance_id is None


def test_preparing_is_asked_for_again_if_the_seat_goes_meanwhile() -> None:
    scene = Scene()
    scene.stable()
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    first = scene.event(Prepare)
    assert not first.lost

    scene.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    scene.do("prepared", first.number, [], scene.now)
    assert scene.waiting(JOIN_GROUP) is None, "the answer to the first question is no answer to the second"
    scene.prepare(lost=True)

    assert scene.request(JOIN_GROUP).member_id == ""
    assert scene.member.seat == NO_SEAT
