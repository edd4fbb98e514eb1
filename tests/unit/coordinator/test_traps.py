"""The coordinator traps of the group semantics (§7.3), by number.

Most are also behaviours of §6 and of "better on purpose"; here each one stands under its own number.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import RETENTION_MS, Bench
from tests.unit.coordinator.scene import (
    Consumer,
    dynamic,
    joined,
    keep_alive,
    lone_member,
    pair,
    stable,
    synced,
)


def test_trap_01_the_sync_timer_spares_static_members_that_are_away() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=30_000)
    leader.join()
    bench.advance(1_500)
    leader.take()
    leader.sync(follower)

    keep_alive(3_000, leader)

    assert leader.heartbeat() == ErrorCode.NONE


def test_trap_02_a_replacement_takes_over_leadership_assignment_session_and_pending_sync() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F", assignment=b"\x02")
    joined(leader, follower)
    leader.sync(follower)
    back = leader.restarted()
    back.join()
    late = follower.restarted()
    late.join()

    group = bench.group()
    assert group.leader_id == back.id
    assert group.roster.awaiting_sync == {late.id}
    assert late.sync().reply.assignment == b"\x02"
    keep_alive(2_900, late)
    assert back.heartbeat() == ErrorCode.NONE
    keep_alive(3_000, late)
    assert late.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "and the session of the new id does end"


def test_trap_03_the_new_id_is_stored_before_it_is_told() -> None:
    bench = Bench()
    _, follower = pair(bench)
    bench.hold()
    back = follower.restarted()

    handle = back.join()
    assert handle.parked
    bench.release()
    back.take()
    bench.restart()

    assert back.heartbeat() == ErrorCode.NONE


def test_trap_04_an_old_leader_is_told_the_old_leader_id() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    again = leader.restarted(version=5).join()

    assert again.reply.leader == leader.id != again.member_id


def test_trap_05_identity_before_generation_before_protocol() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    fenced = bench.sync("stale", 99, instance="L", protocol_name="wrong")
    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.sync(leader.id, 99, protocol_name="wrong").code == ErrorCode.ILLEGAL_GENERATION
    assert bench.sync(leader.id, 1, protocol_name="wrong").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_trap_06_a_static_member_id_without_its_instance_id_is_good() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    assert bench.heartbeat(leader.id, 1) == ErrorCode.NONE
    assert bench.leave((leader.id, None)).codes == [ErrorCode.NONE]


def test_trap_07_going_empty_raises_the_generation_and_keeps_type_and_offsets() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    member.leave()

    stored = bench.group().stored
    assert (stored.generation, stored.leader_id, stored.protocol_name) == (2, None, None)
    assert stored.protocol_type == "consumer"
    assert bench.fetch() == {("t", 0): 5}
    again = bench.join(version=3)
    bench.advance(199)
    assert again.parked, "the initial delay, again"


def test_trap_08_an_id_that_was_handed_out_is_waited_for_for_its_own_session() -> None:
    bench = Bench()
    member = lone_member(bench, rebalance_ms=60_000)
    bench.join(session_ms=400)
    handle = member.join()

    bench.advance(399)
    assert handle.parked
    bench.advance(1)
    assert handle.code == ErrorCode.NONE


def test_trap_09_what_a_removed_member_has_parked_is_answered() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    follower.metadata = b"changed"
    join = follower.join()
    bench.leave(("", "F"))
    assert (join.code, join.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")

    other = Consumer(bench, instance="O")
    other.join()
    leader.join()
    other.take()
    leader.take()
    sync = other.sync()
    bench.leave(("", "O"))
    assert sync.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_trap_10_of_two_parked_requests_of_one_member_only_the_second_succeeds() -> None:
    bench = Bench()
    members = [Consumer(bench, instance="A"), Consumer(bench, instance="B")]
    handles = [members[0].join()]
    bench.advance(400)
    members[0].take()
    synced(members[0])
    members[1].join()
    handles = [members[0].join()]
    assert handles[0].code == ErrorCode.NONE
    members[0].take()
    members[1].take()
    first, second = members[1].sync(), members[1].sync()
    members[0].sync(members[1])

    assert [first.code, second.code] == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE]


def test_trap_11_the_join_phase_completes_whatever_happens_to_those_who_wait() -> None:
    """Replaced, superseded, changed, left, expired: each once while the others are parked."""
    bench = Bench()
    members = [Consumer(bench, instance=name, session_ms=2_000, rebalance_ms=60_000) for name in "ABCDEF"]
    stable(*members)
    leader = next(member for member in members if member.leads)
    others = [member for member in members if member is not leader]
    leader.metadata = b"changed"
    for member in others[:4]:
        member.metadata = b"changed"
        member.join()

    replaced = others[0].restarted(metadata=b"changed")
    replaced.join()
    others[1].join()
    others[2].metadata = b"changed again"
    others[2].join()
    bench.leave(("", others[3].instance))
    bench.advance(2_000)
    handle = leader.join()

    assert handle.code == ErrorCode.UNKNOWN_MEMBER_ID, "it was silent for its session, as the last one was"
    assert bench.state() == "CompletingRebalance"
    assert bench.group().roster.parked_joins == 0


def test_trap_12_rejoining_while_the_assignment_is_awaited() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    assert leader.join().generation == 1
    assert waiting.parked
    leader.metadata = b"changed"
    assert leader.join().parked

    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_trap_13_a_leader_that_rejoins_always_rebalances_and_a_follower_never() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    assert follower.join().generation == 1
    assert leader.join().parked


def test_trap_14_what_comes_while_the_assignment_is_being_stored_waits_for_it() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    bench.hold()
    assigned = leader.sync(follower)
    left = bench.leave(("", "F"))
    beat = bench.heartbeat_later(leader.id, 1)
    assert assigned.parked and left.parked and beat.parked

    bench.release()

    assert assigned.reply.assignment == leader.assignment
    assert left.codes == [ErrorCode.NONE]
    assert beat.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.state() == "PreparingRebalance"


def test_trap_15_only_right_requests_keep_a_session_and_every_wait_ends_in_one() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.advance(2_000)
    bench.heartbeat(member.id, 99)
    bench.sync(member.id, 99)
    bench.commit({("t", 0): 1}, member_id=member.id, generation=99)

    bench.advance(1_000)

    assert bench.state() == "Empty"


def test_trap_16_a_first_join_is_parked_for_five_minutes_at_most() -> None:
    bench = Bench()
    lone = lone_member(bench, session_ms=1_000_000, rebalance_ms=1_000_000)
    ghost = bench.join(version=3, session_ms=6_000, rebalance_ms=1_000_000)

    keep_alive(299_000, lone, step_ms=1_000)
    assert ghost.parked
    bench.advance(1_000)

    assert (ghost.code, ghost.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_trap_17_the_size_counts_parked_joins_and_not_ids_that_were_handed_out() -> None:
    bench = Bench(max_size=2)
    ids = [bench.join().member_id for _ in range(3)]

    handles = [bench.join(member_id) for member_id in ids]

    assert handles[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.advance(400)
    assert [handle.code for handle in handles[:2]] == [ErrorCode.NONE] * 2


def test_trap_17_an_id_that_is_refused_is_no_longer_waited_for() -> None:
    bench = Bench(max_size=2)
    members = [dynamic(bench, rebalance_ms=60_000, session_ms=60_000) for _ in range(2)]
    stable(*members)
    pending = bench.join(session_ms=60_000)
    assert pending.code == ErrorCode.GROUP_MAX_SIZE_REACHED

    leader, follower = sorted(members, key=lambda member: not member.leads)
    leader.join()
    pending = bench.join(session_ms=60_000)
    assert pending.code == ErrorCode.MEMBER_ID_REQUIRED
    handle = follower.join()
    assert handle.parked, "an id has been handed out"
    refused = bench.join(pending.member_id, session_ms=60_000)

    assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_trap_18_the_longest_rebalance_timeout_of_all_counts() -> None:
    bench = Bench()
    quick = Consumer(bench, rebalance_ms=500, session_ms=60_000)
    slow = Consumer(bench, rebalance_ms=5_000, session_ms=60_000)
    stable(quick, slow)
    newcomer = Consumer(bench, rebalance_ms=100)
    handle = newcomer.join()

    bench.advance(4_999)
    assert handle.parked
    bench.advance(1)
    assert handle.code == ErrorCode.NONE


def test_trap_19_a_lone_member_cannot_change_all_its_protocols_at_once() -> None:
    bench = Bench()
    member = lone_member(bench, protocols=["range"])

    member.protocols = ["roundrobin"]
    assert member.join().code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.protocols = ["roundrobin", "range"]
    assert member.join().reply.protocol_name == "roundrobin"


def test_trap_20_what_a_static_member_restarts_with_is_seen_at_the_next_rebalance() -> None:
    """Other topics are one by themselves: see test_changed_topics."""
    bench = Bench()
    leader, follower = pair(bench, metadata=b"old")

    back = follower.restarted(metadata=b"new")
    assert back.join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE
    leader.join()
    back.join()
    leader.take()

    metadata = {entry.group_instance_id: entry.metadata for entry in leader.members}
    assert metadata == {"L": b"old", "F": b"new"}


def test_trap_21_the_leader_sees_those_who_are_away_and_their_assignment_is_kept() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=30_000)
    leader.join()
    bench.advance(1_500)
    leader.take()
    assert {entry.group_instance_id for entry in leader.members} == {"L", "F"}
    follower.assignment = b"kept"
    leader.sync(follower)

    back = follower.restarted()
    back.join()

    assert back.sync().reply.assignment == b"kept"


def test_trap_22_who_may_commit_when() -> None:
    bench = Bench()
    assert bench.commit({("t", 0): 1}, member_id="any", instance="thing").codes == [ErrorCode.NONE]
    member = dynamic(bench)
    joined(member)
    assert member.commit(1).codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    synced(member)
    assert bench.commit({("t", 0): 1}).codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    bench.join(version=3)
    assert bench.state() == "PreparingRebalance"
    assert member.commit(1).codes == [ErrorCode.NONE]


def test_trap_23_fetching_needs_no_membership_and_no_group() -> None:
    bench = Bench()
    assert bench.fetch("unknown") == {}
    member = lone_member(bench)
    member.commit(3)
    assert bench.fetch() == {("t", 0): 3}


def test_trap_24_heartbeat_and_sync_while_loading() -> None:
    bench = Bench()
    bench.restart(only_load=True)

    assert bench.heartbeat("x", 1) == ErrorCode.NONE
    assert bench.sync("x", 1).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_trap_25_a_deleted_group_does_not_rise_when_a_handed_out_id_expires() -> None:
    bench = Bench()
    pending = bench.join(session_ms=500)
    assert bench.delete() == ErrorCode.NONE

    bench.advance(1_000)

    assert bench.state() == "Dead"
    assert bench.join(pending.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_trap_25_also_if_the_id_expires_while_the_deletion_is_being_stored() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.join(session_ms=500)
    bench.hold()
    deleted = bench.delete_later()
    bench.advance(1_000)
    bench.release()

    assert (deleted.reply, bench.state()) == (ErrorCode.NONE, "Dead")


def test_trap_26_describe_shows_the_new_client() -> None:
    bench = Bench()
    leader, _ = pair(bench)
    leader.restarted(client=type(leader.client)("other", "/10.1.1.1")).join()

    assert {member.client_id for member in bench.describe().members} == {"cid", "other"}


@pytest.mark.parametrize(
    ("metadata", "code"), [("é" * 10, ErrorCode.NONE), ("e" * 11, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_trap_27_the_limit_of_metadata_is_in_characters(metadata: str, code: ErrorCode) -> None:
    bench = Bench(metadata_max_chars=10)

    assert bench.commit({("t", 0): bench.offset(1, metadata)}).codes == [code]


def test_trap_28_the_retention_of_an_empty_group_runs_from_when_it_became_empty() -> None:
    bench = Bench()
    member = lone_member(bench, session_ms=RETENTION_MS * 2)
    member.commit(5)
    bench.advance(RETENTION_MS + 1)
    member.leave()
    bench.restart()

    bench.sweep()
    assert bench.fetch() == {("t", 0): 5}
    bench.advance(RETENTION_MS)
    bench.sweep()

    assert bench.fetch() == {}
    assert len(bench.told(EventKind.DELETED)) == 1
