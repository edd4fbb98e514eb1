"""Leaving: dynamic members say goodbye, static ones keep their seats (KIP-345)."""

from holdfast.membership.effects import HangUp, Lane, Left, Prepare
from holdfast.membership.phases import Phase
from holdfast.membership.seat import NO_SEAT
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import JOIN_GROUP, LEAVE_GROUP, MINE, Scene, refused


def test_275_a_dynamic_member_leaves_once_with_id_and_reason() -> None:
    scene = Scene()
    scene.stable()

    scene.do("leave", "the consumer is being closed", scene.now)

    (one,) = scene.request(LEAVE_GROUP).members
    assert (one.member_id, one.group_instance_id, one.reason) == (MINE, None, "the consumer is being closed")
    assert scene.request(LEAVE_GROUP, 2).member_id == MINE, "older versions name one member"
    scene.answer(LEAVE_GROUP, LeaveGroupResponse(members=[]))
    scene.event(Left)
    scene.pass_time(600_000)
    assert scene.history.count("LeaveGroup") == 1
    assert scene.member.seat == NO_SEAT


def test_275_a_static_member_does_not() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable()

    scene.do("leave", "the consumer is being closed", scene.now)

    scene.event(Left)
    assert "LeaveGroup" not in scene.history
    assert scene.member.seat == NO_SEAT, "the next join starts from the instance id"


def test_unless_it_means_it() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable()

    scene.do("leave", "unsubscribed", scene.now, even_if_static=True)

    (one,) = scene.request(LEAVE_GROUP).members
    assert (one.member_id, one.group_instance_id) == (MINE, "seat-1")


def test_277_an_id_that_has_not_joined_yet_leaves_too() -> None:
    scene = Scene()
    scene.start()
    scene.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    scene.do("leave", "the consumer is being closed", scene.now)

    assert scene.request(LEAVE_GROUP).members[0].member_id == "given-id"
    send = scene.waiting(LEAVE_GROUP)
    assert send is not None
    assert send.lane is Lane.SIDE, "the parked join would hold it up"
    assert scene.waiting(JOIN_GROUP) is None


def test_a_member_without_an_id_has_nothing_to_say() -> None:
    scene = Scene()
    scene.start()

    scene.do("leave", "the consumer is being closed", scene.now)

    scene.event(Left)
    assert "LeaveGroup" not in scene.history


def test_a_goodbye_that_is_not_heard_is_not_repeated() -> None:
    scene = Scene()
    scene.stable()
    scene.do("leave", "the consumer is being closed", scene.now)

    scene.break_off(Lane.SIDE)

    scene.event(Left)
    scene.pass_time(60_000)
    assert scene.history.count("LeaveGroup") == 1


def test_leaving_twice_and_leaving_without_having_joined_are_harmless() -> None:
    scene = Scene()
    scene.do("leave", "x", scene.now)
    scene.event(Left)
    scene.stable()
    scene.do("leave", "x", scene.now)
    scene.do("leave", "x", scene.now)

    assert scene.history.count("LeaveGroup") == 1


def test_one_who_left_can_join_again() -> None:
    scene = Scene()
    scene.stable()
    scene.do("leave", "x", scene.now)
    scene.answer(LEAVE_GROUP, LeaveGroupResponse(members=[]))
    scene.event(Left)

    scene.do("join", scene.now)
    scene.prepare()

    assert scene.request(JOIN_GROUP).member_id == ""


def test_closing_ends_everything() -> None:
    scene = Scene()
    scene.stable()

    scene.member.close()

    assert HangUp((Lane.JOINS, Lane.SIDE)) in scene.member.take_effects()
    assert scene.phase is Phase.OVER
    scene.do("join", scene.now)
    scene.pass_time(60_000)
    assert not [event for event in scene.events if isinstance(event, Prepare)]
