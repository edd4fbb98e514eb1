"""SyncGroup. The numbers are those of the behaviours in `tests/conformance`.

Not here: 106 (another broker's group) and 125 (the group moves to another broker): there is only one broker.
"""

from __future__ import annotations

import pytest

from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable


def two_joined(harness: CoordinatorHarness) -> tuple[Consumer, Consumer]:
    """Given: a leader and a follower, dynamic, both joined and nobody synced."""
    members = [dynamic(harness, assignment=bytes([number])) for number in (1, 2)]
    joined(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)
    return leader, follower


def test_no_such_group() -> None:
    assert CoordinatorHarness().sync("x", 1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_answers_unknown_member() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.leave()

    assert member.sync().code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_dies_while_the_sync_waits() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.pause_appends()
    member.leave()
    waiting = member.sync()
    deletion = harness.delete_later()

    harness.complete_one_append()
    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID, "the group is empty now"
    waiting_for_death = member.sync()
    assert waiting_for_death.code == ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat = harness.heartbeat_later(member.id, 1)
    harness.resume_appends()

    assert deletion.reply == ErrorCode.NONE
    assert heartbeat.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "roundrobin")])
def test_another_protocol_than_the_groups(protocol_type: str, protocol_name: str) -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    refused = harness.sync(member.id, 1, protocol_type=protocol_type, protocol_name=protocol_name)

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (refused.reply.protocol_type, refused.reply.protocol_name) == (None, None)


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
def test_v5_without_the_protocol_is_refused_before_all_else(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    refused = CoordinatorHarness().sync("x", 1, protocol_type=protocol_type, protocol_name=protocol_name, group="")

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_older_versions_do_not_name_the_protocol(version: int) -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    assert harness.sync(member.id, 1, version=version).code == ErrorCode.NONE


def test_a_wrong_generation() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    assert harness.sync(member.id, 2).code == ErrorCode.ILLEGAL_GENERATION


def test_the_follower_waits_for_the_leader() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)

    waiting = follower.sync()
    assert waiting.is_pending
    answered = leader.sync(follower)

    assert [waiting.code, answered.code] == [ErrorCode.NONE] * 2
    assert [waiting.reply.assignment, answered.reply.assignment] == [follower.assignment, leader.assignment]
    assert (waiting.reply.protocol_type, waiting.reply.protocol_name) == ("consumer", "range")
    assert harness.state() == "Stable"


def test_what_a_follower_assigns_is_ignored() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)

    waiting = harness.sync(follower.id, 1, {leader.id: b"mine", follower.id: b"mine"})
    assert waiting.is_pending
    leader.sync(follower)

    assert waiting.reply.assignment == follower.assignment


def test_a_follower_that_the_leader_of_a_generic_group_forgot_gets_zero_bytes() -> None:
    harness = CoordinatorHarness()
    first = harness.join(version=3, protocol_type="connect")
    second = harness.join(version=3, protocol_type="connect")
    harness.advance(400)
    leader, follower = sorted((first, second), key=lambda handle: handle.reply.leader != handle.member_id)

    waiting = harness.sync(follower.member_id, 1, version=3)
    harness.sync(leader.member_id, 1, {leader.member_id: b"all"}, version=3)

    assert (waiting.code, waiting.reply.assignment) == (ErrorCode.NONE, b"")


def test_a_leader_that_assigns_to_unknown_members() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)
    waiting = follower.sync()

    answered = harness.sync(leader.id, 1, {"unknown": b"x", leader.id: b"l", follower.id: b"f"})

    assert [waiting.reply.assignment, answered.reply.assignment] == [b"f", b"l"]
    assert {member.member_id for member in harness.group().stored.members} == {leader.id, follower.id}


def test_during_the_join_phase() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    leader.join()

    assert follower.sync().code == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_dies_before_it_assigns() -> None:
    harness = CoordinatorHarness()
    leader = dynamic(harness, session_ms=500, rebalance_ms=60_000)
    follower = dynamic(harness, session_ms=5_000, rebalance_ms=60_000)
    joined(leader, follower)
    assert leader.leads
    waiting = follower.sync()

    harness.advance(499)
    assert waiting.is_pending
    harness.advance(1)

    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().reply.leader == follower.id


def test_followers_that_never_sync_are_dropped_whatever_they_beat() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)
    assert leader.sync(follower).code == ErrorCode.NONE

    keep_alive(1_450, leader, follower)
    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    harness.advance(50)

    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_dropped_too() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)
    waiting = follower.sync()

    keep_alive(1_500, leader)

    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_when_all_have_synced_time_changes_nothing() -> None:
    harness = CoordinatorHarness()
    members = [dynamic(harness), dynamic(harness)]
    stable(*members)

    keep_alive(6_000, *members)

    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
    assert (harness.state(), harness.generation()) == ("Stable", 1)


def test_an_assignment_that_cannot_be_stored_is_returned_to_no_member() -> None:
    harness = CoordinatorHarness()
    leader, follower = two_joined(harness)
    waiting = follower.sync()
    harness.fail_appends(ErrorCode.NOT_COORDINATOR)

    refused = leader.sync(follower)

    assert [waiting.code, refused.code] == [ErrorCode.NOT_COORDINATOR] * 2
    assert (waiting.reply.protocol_type, waiting.reply.protocol_name, waiting.reply.assignment) == (None, None, b"")
    assert harness.state() == "PreparingRebalance"
    assert [leader.join().is_pending, follower.join().generation] == [True, 2]


def test_sync_again_gives_the_same_again() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]
    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]


@pytest.mark.parametrize(
    "bytes_given", [b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe"]
)
def test_an_assignment_that_is_no_consumer_protocol_is_passed_on_as_it_is(bytes_given: bytes) -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)

    assert harness.sync(member.id, 1, {member.id: bytes_given}).reply.assignment == bytes_given


def test_zero_bytes_for_a_consumer_become_a_well_formed_nothing() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)

    assert harness.sync(member.id, 1, {member.id: b""}).reply.assignment == EMPTY_ASSIGNMENT
