"""Static members (KIP-345, KIP-814). The numbers are those of the behaviours in `tests/conformance`.

Not here: 102 (transactions). 96 is where Holdfast follows KIP-345 against Kafka; see test_intentional_differences.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import (
    Consumer,
    dynamic,
    joined,
    keep_alive,
    lone_member,
    pair,
    stable,
    subscription,
    synced,
)

# -- joining -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 9])
def test_a_wrong_member_id_with_a_held_instance_id_is_fenced(version: int) -> None:
    harness = CoordinatorHarness()
    lone_member(harness, instance="X")

    refused = harness.join("unknown_member", instance="X", version=version)

    assert (refused.code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "unknown_member")
    assert len(harness.events_of(EventKind.FENCED)) == 1


def test_kip_814_a_restarted_leader_at_v9_gets_skip_assignment() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    again = leader.restarted().join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert again.reply.skip_assignment
    assert again.reply.leader == again.member_id != leader.id
    assert {entry.group_instance_id for entry in again.reply.members} == {"L", "F"}
    assert follower.heartbeat() == ErrorCode.NONE


def test_kip_814_a_leader_that_skips_the_assignment_gets_all_subscriptions() -> None:
    """It watches the topics of all: those of a follower that it does not read itself have nobody else to watch them."""
    harness = CoordinatorHarness()
    leader = Consumer(harness, instance="L", metadata=subscription("mine"))
    follower = Consumer(harness, instance="F", metadata=subscription("theirs"))
    away = Consumer(harness, instance="A", metadata=subscription("of one that is away"))
    dynamic_one = dynamic(harness, metadata=subscription("of a dynamic one"))
    stable(leader, follower, away, dynamic_one)

    again = leader.restarted().join()

    assert again.reply.skip_assignment
    assert {entry.member_id: entry.metadata for entry in again.reply.members} == {
        again.member_id: subscription("mine"),
        follower.id: subscription("theirs"),
        away.id: subscription("of one that is away"),
        dynamic_one.id: subscription("of a dynamic one"),
    }


def test_control_a_follower_that_restarts_gets_no_member_list() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness, metadata=subscription("t"))

    assert follower.restarted().join().reply.members == []


@pytest.mark.parametrize("version", [5, 6, 7, 8])
def test_kip_814_below_v9_a_restarted_leader_gets_its_old_id_as_the_leaders(version: int) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    again = leader.restarted(version=version).join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert again.reply.leader == leader.id != again.member_id, "so it takes itself for a follower"
    assert (again.reply.members, again.reply.skip_assignment) == ([], False)
    assert follower.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_restarted_follower_keeps_everything_but_its_id(version: int) -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = follower.restarted(version=version)

    again = restarted.join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert (again.reply.leader, again.reply.members, again.reply.skip_assignment) == (leader.id, [], False)
    assert restarted.sync().reply.assignment == b"\x02"
    assert leader.heartbeat() == ErrorCode.NONE


def test_what_a_restarted_leader_sends_with_its_sync_is_ignored() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = leader.restarted(assignment=b"\x09")
    restarted.join()

    assert restarted.sync(follower).reply.assignment == b"\x01"
    assert follower.sync().reply.assignment == b"\x02"


def test_describe_after_a_restart() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = leader.restarted()
    restarted.join()

    members = {member.group_instance_id: member for member in harness.describe().members}

    assert set(members) == {"L", "F"}
    assert (members["L"].member_id, members["L"].member_assignment) == (restarted.id, b"\x01")
    assert (members["F"].member_id, members["F"].member_assignment) == (follower.id, b"\x02")


def test_the_old_id_is_fenced_with_the_instance_id_and_unknown_without() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    leader.restarted().join()

    assert leader.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.sync().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert leader.commit(1).codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.sync(leader.id, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(leader.id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_every_restart_has_its_own_member_id() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    ids = [leader.restarted().join().member_id for _ in range(5)]

    assert len(set(ids)) == 5
    assert all(member_id.startswith("L-") for member_id in ids)
    assert harness.generation() == 1


def test_a_follower_that_rejoins_by_its_id_changes_nothing() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    assert follower.join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE


def test_control_a_static_leader_that_rejoins_by_its_id_does_rebalance() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    assert leader.join().is_pending
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_fewer_protocols_leads_when_the_leader_stays_away() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=60_000)
    follower.protocols = ["roundrobin"]

    handle = follower.join()
    assert handle.is_pending
    harness.advance(1_500)

    assert (handle.generation, handle.reply.leader) == (2, follower.id)
    assert {entry.group_instance_id for entry in handle.reply.members} == {"L", "F"}
    assert handle.reply.protocol_name == "roundrobin"
    assert harness.heartbeat(leader.id, 2, instance="L") == ErrorCode.NONE, "it stays a member"


def test_a_restart_that_would_change_the_protocol_rebalances() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = follower.restarted(protocols=["roundrobin"])

    handle = restarted.join()

    assert handle.is_pending
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    assert (handle.generation, handle.reply.protocol_name) == (2, "roundrobin")


def test_a_restart_that_keeps_the_protocol_does_not() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = follower.restarted(protocols=["range"])

    assert restarted.join().generation == 1
    assert follower.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert restarted.sync().reply.assignment == b"\x02"
    assert leader.heartbeat() == ErrorCode.NONE


def test_a_restart_with_a_longer_session_timeout_uses_it() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = follower.restarted(session_ms=6_000, rebalance_ms=3_000)
    restarted.join()
    restarted.sync()

    keep_alive(5_950, leader)
    assert harness.state() == "Stable", "3000 ms would have been over"
    harness.restart()
    stored = {member.group_instance_id: member for member in harness.group().stored.members}["F"]

    assert (stored.session_timeout, stored.rebalance_timeout) == (6_000, 3_000)


def test_control_and_not_longer() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    follower.restarted(session_ms=6_000).join()

    keep_alive(6_050, leader)

    assert harness.state() == "PreparingRebalance"


def test_a_replacement_that_cannot_be_stored_never_was() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.fail_appends(ErrorCode.UNKNOWN_SERVER_ERROR)

    refused = follower.restarted(protocols=["range"], session_ms=9_000, rebalance_ms=9_000).join()

    assert (refused.code, refused.member_id, refused.generation) == (ErrorCode.UNKNOWN_SERVER_ERROR, "", 1)
    assert (refused.reply.protocol_name, refused.reply.leader, refused.reply.members) == ("range", leader.id, [])
    assert follower.join().generation == 1
    assert follower.sync().reply.assignment == b"\x02"
    kept = harness.group().members.get(follower.id)
    assert kept is not None
    assert (kept.session_timeout_ms, kept.rebalance_timeout_ms) == (3_000, 1_500)
    assert [protocol.name for protocol in kept.protocols] == ["range", "roundrobin"]


def test_a_restart_while_the_group_waits_for_the_assignment_rebalances() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    other = Consumer(harness, instance="O")
    joined(leader, follower, other)
    waiting, fenced = other.sync(), follower.sync()

    again = follower.restarted().join()

    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.is_pending
    leader.join()
    other.join()
    assert (again.code, again.generation) == (ErrorCode.NONE, 2)


def test_a_restart_during_the_join_phase_fences_the_old_member_and_completes() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    leader_join = leader.join()

    new = follower.restarted()
    new_join = new.join()

    assert follower.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader_join.generation == new_join.generation == 2


def test_the_parked_join_of_the_old_one_is_fenced() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    third = Consumer(harness, instance="T")
    third.join()
    old = follower.join()
    assert old.is_pending

    new = follower.restarted().join()

    assert (old.code, old.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower.id)
    leader.join()
    assert new.code == ErrorCode.NONE


def test_the_member_id_of_one_with_the_instance_id_of_the_other() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    assert harness.join(follower.id, instance="L").code == ErrorCode.FENCED_INSTANCE_ID
    assert harness.join(leader.id, instance="F").code == ErrorCode.FENCED_INSTANCE_ID


def test_a_member_id_with_an_unknown_instance_id() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    assert harness.join(leader.id, instance="unknown_instance").code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_its_instance_id_out() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    assert harness.heartbeat(leader.id, 1) == ErrorCode.NONE
    assert harness.sync(leader.id, 1).reply.assignment == b"\x01"
    assert harness.commit({("t", 0): 1}, member_id=leader.id, generation=1).codes == [ErrorCode.NONE]


def test_static_and_dynamic_members_in_one_group() -> None:
    harness = CoordinatorHarness()
    static, moving = Consumer(harness, instance="S"), dynamic(harness)
    stable(static, moving)

    moving.leave()
    assert static.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert static.join().generation == 2
    synced(static)
    another = dynamic(harness)
    handle = another.join()
    static.join()

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 3)
    static.take()
    another.take()
    synced(static, another)
    assert harness.state() == "Stable"


# -- timeouts ---------------------------------------------------------------------------------------------------------


def test_a_static_leader_that_stays_away_is_listed_and_another_leads() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=3_000, rebalance_ms=1_500)
    newcomer = Consumer(harness, instance="N")
    handles = [newcomer.join(), follower.join()]
    assert all(handle.is_pending for handle in handles)

    harness.advance(1_500)

    assert {handle.code for handle in handles} == {ErrorCode.NONE}
    (listed,) = [handle.reply.members for handle in handles if handle.reply.members]
    assert {entry.group_instance_id for entry in listed} == {"L", "F", "N"}
    assert handles[0].reply.leader in {follower.id, handles[0].member_id}
    assert leader.id != handles[0].reply.leader


def test_when_the_last_session_ends_the_group_is_empty() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    follower.leave()
    leader_join = leader.join()
    assert leader_join.generation == 2

    harness.advance(3_000)

    assert (harness.state(), harness.generation()) == ("Empty", 3)
    assert harness.group().stored.leader_id is None
    assert harness.heartbeat(leader.id, 2, instance="L") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_back_within_its_session_causes_no_rebalance() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    for _ in range(10):
        harness.advance(250)
        assert leader.heartbeat() == ErrorCode.NONE
    back = follower.restarted()
    back.join()
    back.sync()
    for _ in range(10):
        harness.advance(250)
        assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2

    assert (harness.state(), harness.generation()) == ("Stable", 1)


def test_control_a_dynamic_member_that_is_back_disturbs_all() -> None:
    harness = CoordinatorHarness()
    members = [dynamic(harness), dynamic(harness)]
    stable(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    follower.restarted().join()

    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


# -- fencing elsewhere -------------------------------------------------------------------------------------------------


def test_sync_with_a_wrong_member_id() -> None:
    harness = CoordinatorHarness()
    pair(harness)

    assert harness.sync("invalid", 1, instance="L").code == ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat("invalid", 1, instance="L") == ErrorCode.FENCED_INSTANCE_ID


def test_commit_with_a_wrong_member_id() -> None:
    harness = CoordinatorHarness()
    pair(harness)
    offsets = {("t", 0): 1, ("t", 1): 2}

    refused = harness.commit(offsets, member_id="invalid", generation=1, instance="L")

    assert refused.reply == dict.fromkeys(offsets, ErrorCode.FENCED_INSTANCE_ID)
    assert harness.fetch() == {}


def test_an_instance_id_without_a_member_id_is_unknown_and_not_fenced() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)

    assert harness.heartbeat("", 1, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync("", 1, instance="F").code == ErrorCode.UNKNOWN_MEMBER_ID
    for generation in (1, -1):
        assert harness.commit({("t", 0): 1}, generation=generation, instance="F").codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.fetch() == {}
    assert not harness.events_of(EventKind.FENCED)
    assert follower.heartbeat() == ErrorCode.NONE

    # where a request may have none, the instance id is enough
    assert harness.leave(("", "F")).codes == [ErrorCode.NONE]


def test_a_dynamic_member_with_the_instance_id_of_another_member() -> None:
    harness = CoordinatorHarness()
    static, moving = Consumer(harness, instance="L"), dynamic(harness)
    stable(static, moving)

    assert harness.heartbeat(moving.id, 1, instance="L") == ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(moving.id, 1, instance="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert moving.heartbeat() == ErrorCode.NONE
