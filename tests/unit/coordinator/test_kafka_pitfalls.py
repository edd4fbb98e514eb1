"""Mistakes that are easy to make in a coordinator, several of them made by Kafka (docs/differences.md).

Most are also behaviours that `tests/conformance` numbers. Here each has a test of its own.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import RETENTION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, synced


def test_the_sync_timer_spares_absent_static_members() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=30_000)
    leader.join()
    harness.advance(1_500)
    leader.take()
    leader.sync(follower)

    keep_alive(3_000, leader)

    assert leader.heartbeat() == ErrorCode.NONE


def test_a_replacement_inherits_leadership_assignment_session_and_pending_sync() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F", assignment=b"\x02")
    joined(leader, follower)
    leader.sync(follower)
    back = leader.restarted()
    back.join()
    late = follower.restarted()
    late.join()

    group = harness.group()
    assert group.leader_id == back.id
    assert group.members.pending_sync_members == {late.id}
    assert late.sync().reply.assignment == b"\x02"
    keep_alive(2_900, late)
    assert back.heartbeat() == ErrorCode.NONE
    keep_alive(3_000, late)
    assert late.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "and the session of the new id does end"


def test_the_new_id_is_stored_before_it_is_returned() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    harness.pause_appends()
    back = follower.restarted()

    handle = back.join()
    assert handle.is_pending
    harness.resume_appends()
    back.take()
    harness.restart()

    assert back.heartbeat() == ErrorCode.NONE


def test_an_old_leader_gets_the_old_leader_id() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    again = leader.restarted(version=5).join()

    assert again.reply.leader == leader.id != again.member_id


def test_identity_is_checked_before_generation_before_protocol() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    fenced = harness.sync("stale", 99, instance="L", protocol_name="wrong")
    assert fenced.code == ErrorCode.FENCED_INSTANCE_ID
    assert harness.sync(leader.id, 99, protocol_name="wrong").code == ErrorCode.ILLEGAL_GENERATION
    assert harness.sync(leader.id, 1, protocol_name="wrong").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_id_without_its_instance_id_is_valid() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    assert harness.heartbeat(leader.id, 1) == ErrorCode.NONE
    assert harness.leave((leader.id, None)).codes == [ErrorCode.NONE]


def test_going_empty_raises_the_generation_and_keeps_type_and_offsets() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    member.leave()

    stored = harness.group().stored
    assert (stored.generation, stored.leader_id, stored.protocol_name) == (2, None, None)
    assert stored.protocol_type == "consumer"
    assert harness.fetch() == {("t", 0): 5}
    again = harness.join(version=3)
    harness.advance(199)
    assert again.is_pending, "the initial delay, again"


def test_a_pending_id_holds_up_the_join_phase_for_its_own_session_timeout() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, rebalance_ms=60_000)
    harness.join(session_ms=400)
    handle = member.join()

    harness.advance(399)
    assert handle.is_pending
    harness.advance(1)
    assert handle.code == ErrorCode.NONE


def test_pending_requests_of_a_removed_member_are_answered() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    follower.metadata = b"changed"
    join = follower.join()
    harness.leave(("", "F"))
    assert (join.code, join.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")

    other = Consumer(harness, instance="O")
    other.join()
    leader.join()
    other.take()
    leader.take()
    sync = other.sync()
    harness.leave(("", "O"))
    assert sync.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_two_pending_requests_of_one_member_only_the_second_succeeds() -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, instance="A"), Consumer(harness, instance="B")]
    handles = [members[0].join()]
    harness.advance(400)
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


def test_the_join_phase_completes_whatever_happens_to_pending_members() -> None:
    """Replaced, superseded, changed, left, expired: each once while the others are parked."""
    harness = CoordinatorHarness()
    members = [Consumer(harness, instance=name, session_ms=2_000, rebalance_ms=60_000) for name in "ABCDEF"]
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
    harness.leave(("", others[3].instance))
    harness.advance(2_000)
    handle = leader.join()

    assert handle.code == ErrorCode.UNKNOWN_MEMBER_ID, "it was silent for its session, as the last one was"
    assert harness.state() == "CompletingRebalance"
    assert harness.group().members.awaiting_join_count == 0


def test_a_rejoin_while_the_group_awaits_the_sync() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    waiting = follower.sync()

    assert leader.join().generation == 1
    assert waiting.is_pending
    leader.metadata = b"changed"
    assert leader.join().is_pending

    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_rejoins_always_rebalances_and_a_follower_never() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    assert follower.join().generation == 1
    assert leader.join().is_pending


def test_requests_during_the_append_of_the_assignment_wait_for_it() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    harness.pause_appends()
    assigned = leader.sync(follower)
    left = harness.leave(("", "F"))
    assert assigned.is_pending and left.is_pending
    assert harness.heartbeat(leader.id, 1) == ErrorCode.NONE, "the departure is not processed yet"

    harness.resume_appends()

    assert assigned.reply.assignment == leader.assignment
    assert left.codes == [ErrorCode.NONE]
    assert harness.heartbeat(leader.id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.state() == "PreparingRebalance"


def test_only_valid_requests_extend_a_session_and_every_pending_one_restarts_it() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.advance(2_000)
    harness.heartbeat(member.id, 99)
    harness.sync(member.id, 99)
    harness.commit({("t", 0): 1}, member_id=member.id, generation=99)

    harness.advance(1_000)

    assert harness.state() == "Empty"


def test_a_first_join_is_pending_for_five_minutes_at_most() -> None:
    harness = CoordinatorHarness()
    lone = lone_member(harness, session_ms=1_000_000, rebalance_ms=1_000_000)
    ghost = harness.join(version=3, session_ms=6_000, rebalance_ms=1_000_000)

    keep_alive(299_000, lone, step_ms=1_000)
    assert ghost.is_pending
    harness.advance(1_000)

    assert (ghost.code, ghost.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_the_group_size_counts_pending_joins_but_not_pending_ids() -> None:
    harness = CoordinatorHarness(max_size=2)
    ids = [harness.join().member_id for _ in range(3)]

    handles = [harness.join(member_id) for member_id in ids]

    assert handles[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.advance(400)
    assert [handle.code for handle in handles[:2]] == [ErrorCode.NONE] * 2


def test_the_join_phase_does_not_wait_for_an_id_that_was_refused() -> None:
    harness = CoordinatorHarness(max_size=2)
    members = [dynamic(harness, rebalance_ms=60_000, session_ms=60_000) for _ in range(2)]
    stable(*members)
    pending = harness.join(session_ms=60_000)
    assert pending.code == ErrorCode.GROUP_MAX_SIZE_REACHED

    leader, follower = sorted(members, key=lambda member: not member.leads)
    leader.join()
    pending = harness.join(session_ms=60_000)
    assert pending.code == ErrorCode.MEMBER_ID_REQUIRED
    handle = follower.join()
    assert handle.is_pending, "an id has been handed out"
    refused = harness.join(pending.member_id, session_ms=60_000)

    assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_the_longest_rebalance_timeout_of_all_members_applies() -> None:
    harness = CoordinatorHarness()
    quick = Consumer(harness, rebalance_ms=500, session_ms=60_000)
    slow = Consumer(harness, rebalance_ms=5_000, session_ms=60_000)
    stable(quick, slow)
    newcomer = Consumer(harness, rebalance_ms=100)
    handle = newcomer.join()

    harness.advance(4_999)
    assert handle.is_pending
    harness.advance(1)
    assert handle.code == ErrorCode.NONE


def test_a_lone_member_cannot_change_all_its_protocols_at_once() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, protocols=["range"])

    member.protocols = ["roundrobin"]
    assert member.join().code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.protocols = ["roundrobin", "range"]
    assert member.join().reply.protocol_name == "roundrobin"


def test_the_subscription_of_a_static_restart_is_used_at_the_next_rebalance() -> None:
    """Other topics are one by themselves: see test_changed_topics."""
    harness = CoordinatorHarness()
    leader, follower = pair(harness, metadata=b"old")

    back = follower.restarted(metadata=b"new")
    assert back.join().generation == 1
    assert leader.heartbeat() == ErrorCode.NONE
    leader.join()
    back.join()
    leader.take()

    metadata = {entry.group_instance_id: entry.metadata for entry in leader.members}
    assert metadata == {"L": b"old", "F": b"new"}


def test_the_leader_gets_absent_members_and_their_assignment_is_kept() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=30_000)
    leader.join()
    harness.advance(1_500)
    leader.take()
    assert {entry.group_instance_id for entry in leader.members} == {"L", "F"}
    follower.assignment = b"kept"
    leader.sync(follower)

    back = follower.restarted()
    back.join()

    assert back.sync().reply.assignment == b"kept"


def test_commits_are_accepted_depending_on_the_member_and_the_state() -> None:
    harness = CoordinatorHarness()
    assert harness.commit({("t", 0): 1}, member_id="any", instance="thing").codes == [ErrorCode.NONE]
    member = dynamic(harness)
    joined(member)
    assert member.commit(1).codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    synced(member)
    assert harness.commit({("t", 0): 1}).codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    harness.join(version=3)
    assert harness.state() == "PreparingRebalance"
    assert member.commit(1).codes == [ErrorCode.NONE]


def test_fetching_needs_no_membership_and_no_group() -> None:
    harness = CoordinatorHarness()
    assert harness.fetch("unknown") == {}
    member = lone_member(harness)
    member.commit(3)
    assert harness.fetch() == {("t", 0): 3}


def test_heartbeat_and_sync_while_loading() -> None:
    harness = CoordinatorHarness()
    harness.restart(only_load=True)

    assert harness.heartbeat("x", 1) == ErrorCode.NONE
    assert harness.sync("x", 1).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_deleted_group_does_not_return_when_a_pending_id_expires() -> None:
    harness = CoordinatorHarness()
    pending = harness.join(session_ms=500)
    assert harness.delete() == ErrorCode.NONE

    harness.advance(1_000)

    assert harness.state() == "Dead"
    assert harness.join(pending.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_group_does_not_return_if_the_id_expires_during_the_append() -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.join(session_ms=500)
    harness.pause_appends()
    deleted = harness.delete_later()
    harness.advance(1_000)
    harness.resume_appends()

    assert (deleted.reply, harness.state()) == (ErrorCode.NONE, "Dead")


def test_describe_shows_the_new_client() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    leader.restarted(client=type(leader.client)("other", "/10.1.1.1")).join()

    assert {member.client_id for member in harness.describe().members} == {"cid", "other"}


@pytest.mark.parametrize(
    ("metadata", "code"), [("é" * 10, ErrorCode.NONE), ("e" * 11, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_the_limit_of_metadata_is_in_characters(metadata: str, code: ErrorCode) -> None:
    harness = CoordinatorHarness(metadata_max_chars=10)

    assert harness.commit({("t", 0): harness.offset(1, metadata)}).codes == [code]


def test_the_retention_of_an_empty_group_runs_from_when_it_became_empty() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, session_ms=RETENTION_MS * 2)
    member.commit(5)
    harness.advance(RETENTION_MS + 1)
    member.leave()
    harness.restart()

    harness.sweep()
    assert harness.fetch() == {("t", 0): 5}
    harness.advance(RETENTION_MS)
    harness.sweep()

    assert harness.fetch() == {}
    assert len(harness.events_of(EventKind.DELETED)) == 1
