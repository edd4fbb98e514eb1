"""Static members (KIP-345, KIP-814): §6.F to §6.H of the group semantics, by number.

Not here: 102 (transactions). 96 is where Holdfast follows KIP-345 against Kafka; see test_better_on_purpose.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import (
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

# -- 6.F joining -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 9])
def test_f65_f67_a_wrong_member_id_with_a_held_instance_id_is_fenced(version: int) -> None:
    bench = Bench()
    lone_member(bench, instance="X")

    refused = bench.join("unknown_member", instance="X", version=version)

    assert (refused.code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "unknown_member")
    assert len(bench.told(EventKind.FENCED)) == 1


def test_f66_kip_814_a_restarted_leader_at_v9_is_told_to_skip_the_assignment() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    again = leader.restarted().join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert again.reply.skip_assignment
    assert again.reply.leader == again.member_id != leader.id
    assert {entry.group_instance_id for entry in again.reply.members} == {"L", "F"}
    assert follower.heartbeat() == ErrorCode.NONE


def test_f66_kip_814_a_leader_that_skips_the_assignment_is_told_what_everybody_reads() -> None:
    """It watches the topics of all: those of a follower that it does not read itself have nobody else to watch them."""
    bench = Bench()
    leader = Consumer(bench, instance="L", metadata=subscription("mine"))
    follower = Consumer(bench, instance="F", metadata=subscription("theirs"))
    away = Consumer(bench, instance="A", metadata=subscription("of one that is away"))
    dynamic_one = dynamic(bench, metadata=subscription("of a dynamic one"))
    stable(leader, follower, away, dynamic_one)

    again = leader.restarted().join()

    assert again.reply.skip_assignment
    assert {entry.member_id: entry.metadata for entry in again.reply.members} == {
        again.member_id: subscription("mine"),
        follower.id: subscription("theirs"),
        away.id: subscription("of one that is away"),
        dynamic_one.id: subscription("of a dynamic one"),
    }


def test_f66_control_a_follower_that_restarts_is_told_nothing_of_the_others() -> None:
    bench = Bench()
    _, follower = pair(bench, metadata=subscription("t"))

    assert follower.restarted().join().reply.members == []


@pytest.mark.parametrize("version", [5, 6, 7, 8])
def test_f67_kip_814_below_v9_a_restarted_leader_is_told_its_old_id_as_the_leaders(version: int) -> None:
    bench = Bench()
    leader, follower = pair(bench)

    again = leader.restarted(version=version).join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert again.reply.leader == leader.id != again.member_id, "so it takes itself for a follower"
    assert (again.reply.members, again.reply.skip_assignment) == ([], False)
    assert follower.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 8, 9])
def test_f68_a_restarted_follower_keeps_everything_but_its_id(version: int) -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = follower.restarted(version=version)

    again = restarted.join()

    assert (again.code, again.generation) == (ErrorCode.NONE, 1)
    assert (again.reply.leader, again.reply.members, again.reply.skip_assignment) == (leader.id, [], False)
    assert restarted.sync().reply.assignment == b"\x02"
    assert leader.heartbeat() == ErrorCode.NONE


def test_f69_what_a_restarted_leader_sends_with_its_sync_is_ignored() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = leader.restarted(assignment=b"\x09")
    restarted.join()

    assert restarted.sync(follower).reply.assignment == b"\x01"
    assert follower.sync().reply.assignment == b"\x02"


def test_f70_describe_after_a_restart() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = leader.restarted()
    restarted.join()

    members = {member.group_instance_id: member for member in bench.describe().members}

    assert set(members) == {"L", "F"}
    assert (members["L"].member_id, members["L"].member_assignment) == (restarted.id, b"\x01")
    assert (members["F"].member_id, members["F"].member_assignment) == (follower.id, b"\x02")


def test_f72_the_old_id_is_fenced_with_the_instance_id_and_unknown_without() -> None:
    bench = Bench()
    leader, _ = pair(bench)
    leader.restarted().join()

    assert leader.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.sync().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert leader.commit(1).codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert bench.sync(leader.id, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(leader.id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_f73_every_restart_has_its_own_member_id() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    ids = [leader.restarted().join().member_id for _ in range(5)]

    assert len(set(ids)) == 5
    assert all(member_id.startswith("L-") for member_id in ids)
    assert bench.generation() == 1


def test_f75_a_follower_that_rejoins_by_its_id_changes_nothing() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    assert follower.join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE


def test_f75_control_a_static_leader_that_rejoins_by_its_id_does_rebalance() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    assert leader.join().parked
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_f76_a_follower_with_fewer_protocols_leads_when_the_leader_stays_away() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=60_000)
    follower.protocols = ["roundrobin"]

    handle = follower.join()
    assert handle.parked
    bench.advance(1_500)

    assert (handle.generation, handle.reply.leader) == (2, follower.id)
    assert {entry.group_instance_id for entry in handle.reply.members} == {"L", "F"}
    assert handle.reply.protocol_name == "roundrobin"
    assert bench.heartbeat(leader.id, 2, instance="L") == ErrorCode.NONE, "its seat is kept"


def test_f77_a_restart_that_would_change_the_protocol_rebalances() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = follower.restarted(protocols=["roundrobin"])

    handle = restarted.join()

    assert handle.parked
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    assert (handle.generation, handle.reply.protocol_name) == (2, "roundrobin")


def test_f78_a_restart_that_keeps_the_protocol_does_not() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = follower.restarted(protocols=["range"])

    assert restarted.join().generation == 1
    assert follower.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert restarted.sync().reply.assignment == b"\x02"
    assert leader.heartbeat() == ErrorCode.NONE


def test_f80_a_restart_with_a_longer_session_lives_by_it() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    restarted = follower.restarted(session_ms=6_000, rebalance_ms=3_000)
    restarted.join()
    restarted.sync()

    keep_alive(5_950, leader)
    assert bench.state() == "Stable", "3000 ms would have been over"
    bench.restart()
    stored = {member.group_instance_id: member for member in bench.group().stored.members}["F"]

    assert (stored.session_timeout, stored.rebalance_timeout) == (6_000, 3_000)


def test_f80_control_and_not_longer() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    follower.restarted(session_ms=6_000).join()

    keep_alive(6_050, leader)

    assert bench.state() == "PreparingRebalance"


def test_f81_a_replacement_that_cannot_be_stored_never_was() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.fail_appends(ErrorCode.UNKNOWN_SERVER_ERROR)

    refused = follower.restarted(protocols=["range"], session_ms=9_000, rebalance_ms=9_000).join()

    assert (refused.code, refused.member_id, refused.generation) == (ErrorCode.UNKNOWN_SERVER_ERROR, "", 1)
    assert (refused.reply.protocol_name, refused.reply.leader, refused.reply.members) == ("range", leader.id, [])
    assert follower.join().generation == 1
    assert follower.sync().reply.assignment == b"\x02"
    kept = bench.group().roster.get(follower.id)
    assert kept is not None
    assert (kept.session_timeout_ms, kept.rebalance_timeout_ms) == (3_000, 1_500)
    assert [protocol.name for protocol in kept.protocols] == ["range", "roundrobin"]


def test_f83_a_restart_while_the_group_waits_for_the_assignment_rebalances() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    other = Consumer(bench, instance="O")
    joined(leader, follower, other)
    waiting, fenced = other.sync(), follower.sync()

    again = follower.restarted().join()

    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.parked
    leader.join()
    other.join()
    assert (again.code, again.generation) == (ErrorCode.NONE, 2)


def test_f84_a_restart_during_the_join_phase_fences_the_old_and_completes_with_the_others() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    leader_join = leader.join()

    new = follower.restarted()
    new_join = new.join()

    assert follower.join().code == ErrorCode.FENCED_INSTANCE_ID
    assert leader_join.generation == new_join.generation == 2


def test_f84_the_parked_join_of_the_old_one_is_fenced() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    third = Consumer(bench, instance="T")
    third.join()
    old = follower.join()
    assert old.parked

    new = follower.restarted().join()

    assert (old.code, old.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower.id)
    leader.join()
    assert new.code == ErrorCode.NONE


def test_f85_the_member_id_of_one_with_the_instance_id_of_the_other() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    assert bench.join(follower.id, instance="L").code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.join(leader.id, instance="F").code == ErrorCode.FENCED_INSTANCE_ID


def test_f86_a_member_id_with_an_instance_id_that_nobody_holds() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    assert bench.join(leader.id, instance="unknown_instance").code == ErrorCode.UNKNOWN_MEMBER_ID


def test_f87_a_static_member_may_leave_its_instance_id_out() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    assert bench.heartbeat(leader.id, 1) == ErrorCode.NONE
    assert bench.sync(leader.id, 1).reply.assignment == b"\x01"
    assert bench.commit({("t", 0): 1}, member_id=leader.id, generation=1).codes == [ErrorCode.NONE]


def test_f88_static_and_dynamic_members_in_one_group() -> None:
    bench = Bench()
    static, moving = Consumer(bench, instance="S"), dynamic(bench)
    stable(static, moving)

    moving.leave()
    assert static.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert static.join().generation == 2
    synced(static)
    another = dynamic(bench)
    handle = another.join()
    static.join()

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 3)
    static.take()
    another.take()
    synced(static, another)
    assert bench.state() == "Stable"


# -- 6.G time-outs -----------------------------------------------------------------------------------------------------


def test_g91_a_static_leader_that_stays_away_is_listed_and_another_leads() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=3_000, rebalance_ms=1_500)
    newcomer = Consumer(bench, instance="N")
    handles = [newcomer.join(), follower.join()]
    assert all(handle.parked for handle in handles)

    bench.advance(1_500)

    assert {handle.code for handle in handles} == {ErrorCode.NONE}
    (listed,) = [handle.reply.members for handle in handles if handle.reply.members]
    assert {entry.group_instance_id for entry in listed} == {"L", "F", "N"}
    assert handles[0].reply.leader in {follower.id, handles[0].member_id}
    assert leader.id != handles[0].reply.leader


def test_g93_when_the_last_session_ends_the_group_is_empty() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    follower.leave()
    leader_join = leader.join()
    assert leader_join.generation == 2

    bench.advance(3_000)

    assert (bench.state(), bench.generation()) == ("Empty", 3)
    assert bench.group().stored.leader_id is None
    assert bench.heartbeat(leader.id, 2, instance="L") == ErrorCode.UNKNOWN_MEMBER_ID


def test_g97_a_static_member_that_is_back_within_its_session_disturbs_nobody() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    for _ in range(10):
        bench.advance(250)
        assert leader.heartbeat() == ErrorCode.NONE
    back = follower.restarted()
    back.join()
    back.sync()
    for _ in range(10):
        bench.advance(250)
        assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2

    assert (bench.state(), bench.generation()) == ("Stable", 1)


def test_g97_control_a_dynamic_member_that_is_back_disturbs_all() -> None:
    bench = Bench()
    members = [dynamic(bench), dynamic(bench)]
    stable(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    follower.restarted().join()

    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


# -- 6.H fencing elsewhere ---------------------------------------------------------------------------------------------


def test_h98_sync_with_a_wrong_member_id() -> None:
    bench = Bench()
    pair(bench)

    assert bench.sync("invalid", 1, instance="L").code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat("invalid", 1, instance="L") == ErrorCode.FENCED_INSTANCE_ID


def test_h100_commit_with_a_wrong_member_id() -> None:
    bench = Bench()
    pair(bench)
    offsets = {("t", 0): 1, ("t", 1): 2}

    refused = bench.commit(offsets, member_id="invalid", generation=1, instance="L")

    assert refused.reply == dict.fromkeys(offsets, ErrorCode.FENCED_INSTANCE_ID)
    assert bench.fetch() == {}


def test_an_instance_id_without_a_member_id_is_unknown_and_not_fenced() -> None:
    bench = Bench()
    _, follower = pair(bench)

    assert bench.heartbeat("", 1, instance="F") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync("", 1, instance="F").code == ErrorCode.UNKNOWN_MEMBER_ID
    for generation in (1, -1):
        assert bench.commit({("t", 0): 1}, generation=generation, instance="F").codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.fetch() == {}
    assert not bench.told(EventKind.FENCED)
    assert follower.heartbeat() == ErrorCode.NONE

    # where a request may have none, the instance id is enough
    assert bench.leave(("", "F")).codes == [ErrorCode.NONE]


def test_h103_a_dynamic_member_with_somebodys_instance_id() -> None:
    bench = Bench()
    static, moving = Consumer(bench, instance="L"), dynamic(bench)
    stable(static, moving)

    assert bench.heartbeat(moving.id, 1, instance="L") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(moving.id, 1, instance="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert moving.heartbeat() == ErrorCode.NONE
