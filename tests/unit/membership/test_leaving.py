"""Leaving: dynamic members send LeaveGroup, static ones do not (KIP-345)."""

from holdfast.membership.effects import Channel, CloseChannels, JoinPrepare, LeftGroup
from holdfast.membership.generation import NO_GENERATION
from holdfast.membership.phases import Phase
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import JOIN_GROUP, LEAVE_GROUP, MINE, MemberHarness, refused


def test_a_dynamic_member_leaves_once_with_id_and_reason() -> None:
    harness = MemberHarness()
    harness.stable()

    harness.do("leave", "the consumer is being closed", harness.now)

    (one,) = harness.request(LEAVE_GROUP).members
    assert (one.member_id, one.group_instance_id, one.reason) == (MINE, None, "the consumer is being closed")
    assert harness.request(LEAVE_GROUP, 2).member_id == MINE, "older versions name one member"
    harness.answer(LEAVE_GROUP, LeaveGroupResponse(members=[]))
    harness.event(LeftGroup)
    harness.pass_time(600_000)
    assert harness.history.count("LeaveGroup") == 1
    assert harness.member.generation == NO_GENERATION


def test_a_static_member_does_not_leave() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable()

    harness.do("leave", "the consumer is being closed", harness.now)

    harness.event(LeftGroup)
    assert "LeaveGroup" not in harness.history
    assert harness.member.generation == NO_GENERATION, "the next join starts from the instance id"


def test_unless_it_means_it() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable()

    harness.do("leave", "unsubscribed", harness.now, even_if_static=True)

    (one,) = harness.request(LEAVE_GROUP).members
    assert (one.member_id, one.group_instance_id) == (MINE, "instance-1")


def test_an_id_that_has_not_joined_yet_leaves_too() -> None:
    harness = MemberHarness()
    harness.start()
    harness.answer(JOIN_GROUP, refused(ErrorCode.MEMBER_ID_REQUIRED, "given-id"))

    harness.do("leave", "the consumer is being closed", harness.now)

    assert harness.request(LEAVE_GROUP).members[0].member_id == "given-id"
    send = harness.pending(LEAVE_GROUP)
    assert send is not None
    assert send.channel is Channel.COORDINATOR, "the parked join would hold it up"
    assert harness.pending(JOIN_GROUP) is None


def test_a_member_without_an_id_has_nothing_to_say() -> None:
    harness = MemberHarness()
    harness.start()

    harness.do("leave", "the consumer is being closed", harness.now)

    harness.event(LeftGroup)
    assert "LeaveGroup" not in harness.history


def test_a_leave_without_a_response_is_not_repeated() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.do("leave", "the consumer is being closed", harness.now)

    harness.disconnect(Channel.COORDINATOR)

    harness.event(LeftGroup)
    harness.pass_time(60_000)
    assert harness.history.count("LeaveGroup") == 1


def test_leaving_twice_and_leaving_without_having_joined_are_harmless() -> None:
    harness = MemberHarness()
    harness.do("leave", "x", harness.now)
    harness.event(LeftGroup)
    harness.stable()
    harness.do("leave", "x", harness.now)
    harness.do("leave", "x", harness.now)

    assert harness.history.count("LeaveGroup") == 1


def test_a_member_that_left_can_join_again() -> None:
    harness = MemberHarness()
    harness.stable()
    harness.do("leave", "x", harness.now)
    harness.answer(LEAVE_GROUP, LeaveGroupResponse(members=[]))
    harness.event(LeftGroup)

    harness.do("join", harness.now)
    harness.prepare()

    assert harness.request(JOIN_GROUP).member_id == ""


def test_closing_ends_everything() -> None:
    harness = MemberHarness()
    harness.stable()

    harness.member.close()

    assert CloseChannels((Channel.JOIN, Channel.COORDINATOR)) in harness.member.take_effects()
    assert harness.phase is Phase.CLOSED
    harness.do("join", harness.now)
    harness.pass_time(60_000)
    assert not [event for event in harness.events if isinstance(event, JoinPrepare)]
