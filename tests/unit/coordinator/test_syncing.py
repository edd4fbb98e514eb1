"""SyncGroup: §6.I of the group semantics, by number.

Not here: 106 (another broker's group) and 125 (the group moves to another broker): there is only one broker.
"""

from __future__ import annotations

import pytest

from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable


def two_joined(bench: Bench) -> tuple[Consumer, Consumer]:
    """Given: a leader and a follower, dynamic, both joined and nobody synced."""
    members = [dynamic(bench, assignment=bytes([number])) for number in (1, 2)]
    joined(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)
    return leader, follower


def test_i104_no_such_group() -> None:
    assert Bench().sync("x", 1).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_i104_an_empty_group_answers_unknown_member() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.leave()

    assert member.sync().code == ErrorCode.UNKNOWN_MEMBER_ID


def test_i105_a_group_that_dies_while_the_sync_waits() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.hold()
    member.leave()
    waiting = member.sync()
    deletion = bench.delete_later()

    bench.release_one()
    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID, "the group is empty now"
    waiting_for_death = member.sync()
    assert waiting_for_death.code == ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat = bench.heartbeat_later(member.id, 1)
    bench.release()

    assert deletion.reply == ErrorCode.NONE
    assert heartbeat.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "roundrobin")])
def test_i108_another_protocol_than_the_groups(protocol_type: str, protocol_name: str) -> None:
    bench = Bench()
    member = lone_member(bench)

    refused = bench.sync(member.id, 1, protocol_type=protocol_type, protocol_name=protocol_name)

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (refused.reply.protocol_type, refused.reply.protocol_name) == (None, None)


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
def test_i108_v5_without_the_protocol_is_refused_before_all_else(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    refused = Bench().sync("x", 1, protocol_type=protocol_type, protocol_name=protocol_name, group="")

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_i110_older_versions_do_not_name_the_protocol(version: int) -> None:
    bench = Bench()
    member = lone_member(bench)

    assert bench.sync(member.id, 1, version=version).code == ErrorCode.NONE


def test_i111_a_wrong_generation() -> None:
    bench = Bench()
    member = lone_member(bench)

    assert bench.sync(member.id, 2).code == ErrorCode.ILLEGAL_GENERATION


def test_i113_the_follower_waits_for_the_leader() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)

    waiting = follower.sync()
    assert waiting.parked
    answered = leader.sync(follower)

    assert [waiting.code, answered.code] == [ErrorCode.NONE] * 2
    assert [waiting.reply.assignment, answered.reply.assignment] == [follower.assignment, leader.assignment]
    assert (waiting.reply.protocol_type, waiting.reply.protocol_name) == ("consumer", "range")
    assert bench.state() == "Stable"


def test_i113_what_a_follower_assigns_is_ignored() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)

    waiting = bench.sync(follower.id, 1, {leader.id: b"mine", follower.id: b"mine"})
    assert waiting.parked
    leader.sync(follower)

    assert waiting.reply.assignment == follower.assignment


def test_i114_a_follower_that_the_leader_of_a_generic_group_forgot_gets_zero_bytes() -> None:
    bench = Bench()
    first = bench.join(version=3, protocol_type="connect")
    second = bench.join(version=3, protocol_type="connect")
    bench.advance(400)
    leader, follower = sorted((first, second), key=lambda handle: handle.reply.leader != handle.member_id)

    waiting = bench.sync(follower.member_id, 1, version=3)
    bench.sync(leader.member_id, 1, {leader.member_id: b"all"}, version=3)

    assert (waiting.code, waiting.reply.assignment) == (ErrorCode.NONE, b"")


def test_i114_a_leader_that_assigns_to_strangers() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)
    waiting = follower.sync()

    answered = bench.sync(leader.id, 1, {"stranger": b"x", leader.id: b"l", follower.id: b"f"})

    assert [waiting.reply.assignment, answered.reply.assignment] == [b"f", b"l"]
    assert {member.member_id for member in bench.group().stored.members} == {leader.id, follower.id}


def test_i116_during_the_join_phase() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    leader.join()

    assert follower.sync().code == ErrorCode.REBALANCE_IN_PROGRESS


def test_i118_the_leader_dies_before_it_assigns() -> None:
    bench = Bench()
    leader = dynamic(bench, session_ms=500, rebalance_ms=60_000)
    follower = dynamic(bench, session_ms=5_000, rebalance_ms=60_000)
    joined(leader, follower)
    assert leader.leads
    waiting = follower.sync()

    bench.advance(499)
    assert waiting.parked
    bench.advance(1)

    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().reply.leader == follower.id


def test_i120_followers_that_never_sync_are_dropped_whatever_they_beat() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)
    assert leader.sync(follower).code == ErrorCode.NONE

    keep_alive(1_450, leader, follower)
    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    bench.advance(50)

    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_i120_a_leader_that_never_syncs_is_dropped_too() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)
    waiting = follower.sync()

    keep_alive(1_500, leader)

    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_i122_when_all_have_synced_time_changes_nothing() -> None:
    bench = Bench()
    members = [dynamic(bench), dynamic(bench)]
    stable(*members)

    keep_alive(6_000, *members)

    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
    assert (bench.state(), bench.generation()) == ("Stable", 1)


def test_i123_an_assignment_that_cannot_be_stored_is_told_to_nobody() -> None:
    bench = Bench()
    leader, follower = two_joined(bench)
    waiting = follower.sync()
    bench.fail_appends(ErrorCode.NOT_COORDINATOR)

    refused = leader.sync(follower)

    assert [waiting.code, refused.code] == [ErrorCode.NOT_COORDINATOR] * 2
    assert (waiting.reply.protocol_type, waiting.reply.protocol_name, waiting.reply.assignment) == (None, None, b"")
    assert bench.state() == "PreparingRebalance"
    assert [leader.join().parked, follower.join().generation] == [True, 2]


def test_i124_sync_again_gives_the_same_again() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]
    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]


@pytest.mark.parametrize(
    "bytes_given", [b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe"]
)
def test_an_assignment_that_is_no_consumer_protocol_is_passed_on_as_it_is(bytes_given: bytes) -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)

    assert bench.sync(member.id, 1, {member.id: bytes_given}).reply.assignment == bytes_given


def test_zero_bytes_for_a_consumer_become_a_well_formed_nothing() -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)

    assert bench.sync(member.id, 1, {member.id: b""}).reply.assignment == EMPTY_ASSIGNMENT
