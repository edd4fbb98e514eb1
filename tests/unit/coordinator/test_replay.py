"""Expiry, persistence and replay. The numbers are those of the behaviours in `tests/conformance`.

216 and 221 (the bytes of the records) are in tests/unit/wire/test_group_records.py.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
    partition_for,
)
from holdfast.wire.offset_records import OffsetRecords
from tests.unit.coordinator.harness import GROUP, RETENTION_MS, CoordinatorHarness
from tests.unit.coordinator.members import (
    Consumer,
    dynamic,
    joined,
    keep_alive,
    lone_member,
    pair,
    stable,
    subscription,
)

T0 = ("t", 0)

# -- expiry ------------------------------------------------------------------------------------------------------------


def test_the_offsets_retention_starts_when_the_group_becomes_empty() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    harness.advance(2_000)
    member.leave()

    harness.advance(RETENTION_MS - 1)
    harness.sweep()
    assert harness.fetch() == {T0: 5}
    harness.advance(1)
    harness.sweep()

    assert (harness.fetch(), harness.state()) == ({}, "Dead")
    harness.restart()
    assert harness.state() == "Dead"


def test_in_a_live_group_only_offsets_of_unsubscribed_topics_expire() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, metadata=subscription("t"), session_ms=1_000_000)
    harness.commit({T0: 1, ("old", 0): 2}, member_id=member.id, generation=1)

    harness.advance(RETENTION_MS)
    harness.sweep()

    assert harness.fetch() == {T0: 1}


def test_in_a_simple_group_each_offset_has_its_own_time() -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.advance(1_000)
    harness.commit({("t", 1): 2})

    harness.advance(RETENTION_MS - 1_000)
    harness.sweep()
    assert harness.fetch() == {("t", 1): 2}
    harness.advance(1_000)
    harness.sweep()

    assert (harness.fetch(), harness.state()) == ({}, "Dead")


def test_while_a_group_rebalances_nothing_expires() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=1_000_000, rebalance_ms=1_000_000)
    harness.commit({("old", 0): 2}, member_id=leader.id, generation=1, instance="L")
    follower.metadata = b"changed"
    follower.join()

    harness.advance(RETENTION_MS + 1)
    harness.sweep()

    assert (harness.state(), harness.fetch()) == ("PreparingRebalance", {("old", 0): 2})


def test_an_explicit_expiry_waits_while_the_topic_is_subscribed() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, metadata=subscription("t"))
    harness.commit({T0: harness.offset(1, expires_ms=harness.now + 10)}, member_id=member.id, generation=1)
    harness.advance(20)

    harness.sweep()
    assert harness.fetch() == {T0: 1}
    member.leave()
    harness.sweep()

    assert harness.fetch() == {}


def test_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})
    harness.advance(RETENTION_MS)
    harness.fail_appends()

    harness.sweep()
    assert harness.fetch() == {T0: 1}
    harness.sweep()

    assert harness.fetch() == {}


# -- reload ------------------------------------------------------------------------------------------------------------


def test_a_stable_group_survives_a_restart() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)

    harness.restart()

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]
    assert (harness.state(), harness.generation()) == ("Stable", 1)


def test_after_a_restart_every_session_starts_again_and_can_expire() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    harness.advance(2_900)
    harness.restart()

    harness.advance(2_999)
    assert harness.state() == "Stable"
    harness.advance(1)

    assert (harness.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_static_member_that_was_replaced_stays_so_over_a_restart() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    back = follower.restarted()
    back.join()

    harness.restart()

    assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert back.sync().reply.assignment == b"\x02"


def test_only_the_chosen_protocol_is_stored_so_a_rejoin_with_two_rebalances() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    harness.restart()

    assert follower.join().is_pending
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_control_a_rejoin_with_the_chosen_one_alone_does_not() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness, protocols=["range"])
    harness.restart()

    assert follower.join().generation == 1


def test_an_empty_group_comes_back_empty_with_its_generation() -> None:
    harness = CoordinatorHarness()
    key = GroupMetadataKey(GROUP)
    value = GroupMetadataValue("consumer", 27, None, None, harness.now, [])
    harness.group_log[partition_for(GROUP, 50)] = [(encode_key(key), encode_value(value))]

    harness.restart()

    assert (harness.state(), harness.generation()) == ("Empty", 27)
    assert harness.describe().protocol_type == "consumer"
    member = dynamic(harness)
    joined(member)
    assert member.generation == 28


def test_a_record_with_two_holders_of_an_instance_id_loads_one_and_rebalances() -> None:
    # given a group log that no broker should write: two members on one instance id
    harness = CoordinatorHarness()
    key = GroupMetadataKey(GROUP)
    twice = [MemberMetadata(member_id, "node", "c", "/h", 10_000, 10_000, b"", b"") for member_id in ("one", "two")]
    value = GroupMetadataValue("consumer", 3, "range", "one", harness.now, twice)
    harness.group_log[partition_for(GROUP, 50)] = [(encode_key(key), encode_value(value))]
    harness.commit({T0: 1}, group="another")

    harness.restart()

    # then it is loaded, and rebalances; so are the others
    assert (harness.state(), [member.member_id for member in harness.describe().members]) == (
        "PreparingRebalance",
        ["one"],
    )
    assert harness.events_of(EventKind.REBALANCE_STARTED)[-1].cause.code is CauseCode.MEMBER_STORED_TWICE
    assert harness.fetch("another") == {T0: 1}


def test_a_tombstone_ends_a_group_and_offsets_alone_make_a_simple_one() -> None:
    harness = CoordinatorHarness()
    lone_member(harness).leave()
    harness.delete()
    harness.commit({T0: 1}, group="offsets-only")

    harness.restart()

    assert harness.state() == "Dead"
    assert (harness.state("offsets-only"), harness.describe("offsets-only").protocol_type) == ("Empty", "")


def test_a_deleted_offset_stays_deleted() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})
    harness.delete_offsets(T0)

    harness.restart()

    assert harness.fetch() == {}


def test_the_retention_of_an_empty_group_continues_after_a_restart() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    member.leave()
    harness.advance(RETENTION_MS - 10)
    harness.restart()

    harness.sweep()
    assert harness.fetch() == {T0: 5}
    harness.advance(10)
    harness.sweep()

    assert harness.fetch() == {}


def test_ids_that_were_handed_out_are_forgotten_over_a_restart() -> None:
    harness = CoordinatorHarness()
    lone_member(harness)
    pending = harness.join().member_id
    harness.restart()

    assert harness.join(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_too_large_by_now_rebalances_and_the_last_to_rejoin_is_out() -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, protocols=["range"]) for _ in range(3)]
    stable(*members)
    harness.config = type(harness.config)(min_session_timeout_ms=100, max_size=2)

    harness.restart()
    assert harness.state() == "PreparingRebalance"
    handles = [member.join() for member in members]

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


# -- the four failure steps --------------------------------------------------------------------------------------------


def test_a_crash_before_the_generation_is_stored_leaves_the_old_one() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, protocols=["range"])
    harness.pause_appends()
    leader.join()
    follower.join()

    harness.restart()

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    assert harness.generation() == 1


@pytest.mark.parametrize("leader_sends", ["sync", "join"])
def test_a_crash_between_join_and_sync_keeps_the_generation(leader_sends: str) -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, protocols=["range"], assignment=bytes([number])) for number in (1, 2)]
    joined(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    harness.restart()
    assert (harness.state(), harness.generation()) == ("CompletingRebalance", 1)
    waiting = follower.sync()
    assert waiting.is_pending

    if leader_sends == "sync":
        assert leader.sync(follower).code == ErrorCode.NONE
        assert waiting.reply.assignment == follower.assignment
    else:
        assert leader.join().is_pending, "a member that joins after the crash makes all rejoin"
        assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
        assert follower.join().generation == 2


def test_a_crash_after_the_assignment_causes_no_rebalance() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)
    follower.sync()
    harness.pause_appends()
    leader.sync(follower)
    harness.complete_one_append()

    harness.restart()

    assert harness.state() == "Stable"
    assert [leader.sync().code, follower.sync().code] == [ErrorCode.NONE] * 2


def test_after_a_crash_before_the_sync_members_that_do_not_sync_are_removed() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)
    harness.restart()

    keep_alive(1_450, member)
    assert harness.state() == "CompletingRebalance"
    harness.advance(50)

    assert (harness.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


# -- orders of records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_tombstones", [True, False])
def test_a_compacted_group_log_restores_the_same_groups(keep_tombstones: bool) -> None:
    harness = CoordinatorHarness(partition_count=1)
    leader, follower = pair(harness)
    follower.restarted().join()
    leader.commit(5)
    harness.commit({T0: 1}, group="simple")
    gone = Consumer(harness, group="gone")
    stable(gone)
    gone.leave()
    harness.delete("gone")
    half = Consumer(harness, group="half")
    joined(half)
    before = {group.id: group.stored for group in harness.groups()}

    harness.compact(keep_tombstones=keep_tombstones)
    harness.restart()

    after = {group.id: group.stored for group in harness.groups()}
    assert set(after) == {"g", "simple", "half"}
    assert {name: after[name] for name in ("g", "half")} == {name: before[name] for name in ("g", "half")}
    assert after["simple"].offsets == before["simple"].offsets


def test_a_stable_group_is_one_record_of_a_compacted_group_log() -> None:
    harness = CoordinatorHarness(partition_count=1)
    pair(harness)

    harness.compact(keep_tombstones=False)

    assert [key for key, _ in harness.group_log[0]] == [encode_key(GroupMetadataKey(GROUP))]


def test_a_group_deleted_with_an_unassigned_generation_stays_deleted() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)
    member.leave()
    assert harness.delete() == ErrorCode.NONE

    harness.compact(keep_tombstones=False)
    harness.restart()

    assert harness.state() == "Dead"


def test_a_group_tombstone_does_not_take_offsets_along_that_have_none_of_their_own() -> None:
    harness = CoordinatorHarness(partition_count=1)
    harness.commit({T0: 5})
    harness.group_log[0].append((encode_key(GroupMetadataKey(GROUP)), None))

    harness.restart()

    assert harness.fetch() == {T0: 5}


def test_offsets_that_were_committed_after_a_deletion_survive_a_restart() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.commit(5)
    member.leave()
    harness.delete()
    harness.commit({T0: 6})

    harness.restart()

    assert harness.fetch() == {T0: 6}


def test_the_event_has_the_time_that_the_group_was_unassigned() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    leader.join()
    keep_alive(500, follower)
    follower.join()
    for member in (leader, follower):
        member.take()
    follower.sync()
    harness.advance(100)
    leader.sync(follower)

    assert harness.events_of(EventKind.ASSIGNED)[-1].unassigned_ms == 600


def test_offsets_of_a_topic_deleted_while_the_group_log_loads_are_removed() -> None:
    # given a group with offsets of two topics, and a broker that starts again
    harness = CoordinatorHarness()
    harness.commit({("kept", 0): 1, ("gone", 0): 1})
    harness.restart(only_load=True)

    # when one of them is deleted before the group is known
    harness.topics_deleted("gone")
    harness.finish_loading()

    # then a new topic of that name begins without an offset
    assert set(harness.fetch()) == {("kept", 0)}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_commit_is_replayed_at_once_as_record_by_record(at_once: bool) -> None:
    """Also for a group that is not known yet, and over earlier offsets."""
    harness = CoordinatorHarness(checked=False)
    harness.coordinator.load_started([harness.partition_of()])
    for offsets in ({T0: 1, ("t", 1): 2}, {T0: 3}):
        committed = OffsetRecords(GROUP, {key: harness.offset(value) for key, value in offsets.items()})
        harness.coordinator.replay(committed if at_once else list(committed))
    harness.coordinator.load_finished(harness.partition_of(), harness.now)

    assert harness.fetch() == {T0: 3, ("t", 1): 2}
