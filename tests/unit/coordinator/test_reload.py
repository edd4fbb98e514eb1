"""Expiry, persistence and reload: §6.O of the group semantics, by number.

216 and 221 (the bytes of the records) are in tests/unit/wire/test_group_records.py.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
    partition_for,
)
from tests.unit.coordinator.bench import GROUP, RETENTION_MS, Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, subscription

T0 = ("t", 0)

# -- expiry ------------------------------------------------------------------------------------------------------------


def test_o203_the_offsets_of_an_empty_group_live_for_the_retention_from_when_it_became_empty() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    bench.advance(2_000)
    member.leave()

    bench.advance(RETENTION_MS - 1)
    bench.sweep()
    assert bench.fetch() == {T0: 5}
    bench.advance(1)
    bench.sweep()

    assert (bench.fetch(), bench.state()) == ({}, "Dead")
    bench.restart()
    assert bench.state() == "Dead"


def test_o204_of_a_live_group_only_topics_that_nobody_reads_expire() -> None:
    bench = Bench()
    member = lone_member(bench, metadata=subscription("t"), session_ms=1_000_000)
    bench.commit({T0: 1, ("old", 0): 2}, member_id=member.id, generation=1)

    bench.advance(RETENTION_MS)
    bench.sweep()

    assert bench.fetch() == {T0: 1}


def test_o205_in_a_simple_group_each_offset_has_its_own_time() -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.advance(1_000)
    bench.commit({("t", 1): 2})

    bench.advance(RETENTION_MS - 1_000)
    bench.sweep()
    assert bench.fetch() == {("t", 1): 2}
    bench.advance(1_000)
    bench.sweep()

    assert (bench.fetch(), bench.state()) == ({}, "Dead")


def test_o206_while_a_group_rebalances_nothing_expires() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=1_000_000, rebalance_ms=1_000_000)
    bench.commit({("old", 0): 2}, member_id=leader.id, generation=1, instance="L")
    follower.metadata = b"changed"
    follower.join()

    bench.advance(RETENTION_MS + 1)
    bench.sweep()

    assert (bench.state(), bench.fetch()) == ("PreparingRebalance", {("old", 0): 2})


def test_o207_an_explicit_expiry_waits_until_nobody_reads_the_topic() -> None:
    bench = Bench()
    member = lone_member(bench, metadata=subscription("t"))
    bench.commit({T0: bench.offset(1, expires_ms=bench.now + 10)}, member_id=member.id, generation=1)
    bench.advance(20)

    bench.sweep()
    assert bench.fetch() == {T0: 1}
    member.leave()
    bench.sweep()

    assert bench.fetch() == {}


def test_o208_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.advance(RETENTION_MS)
    bench.fail_appends()

    bench.sweep()
    assert bench.fetch() == {T0: 1}
    bench.sweep()

    assert bench.fetch() == {}


# -- reload ------------------------------------------------------------------------------------------------------------


def test_o209_a_stable_group_goes_on_over_a_restart() -> None:
    bench = Bench()
    leader, follower = pair(bench)

    bench.restart()

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    assert [leader.sync().reply.assignment, follower.sync().reply.assignment] == [b"\x01", b"\x02"]
    assert (bench.state(), bench.generation()) == ("Stable", 1)


def test_o210_after_a_restart_every_session_starts_anew_and_does_end() -> None:
    bench = Bench()
    member = lone_member(bench)
    bench.advance(2_900)
    bench.restart()

    bench.advance(2_999)
    assert bench.state() == "Stable"
    bench.advance(1)

    assert (bench.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


def test_o211_a_static_member_that_was_replaced_stays_so_over_a_restart() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    back = follower.restarted()
    back.join()

    bench.restart()

    assert [leader.heartbeat(), back.heartbeat()] == [ErrorCode.NONE] * 2
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert back.sync().reply.assignment == b"\x02"


def test_o212_only_the_chosen_protocol_is_stored_so_a_rejoin_with_two_rebalances() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    bench.restart()

    assert follower.join().parked
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_o212_control_a_rejoin_with_the_chosen_one_alone_does_not() -> None:
    bench = Bench()
    _, follower = pair(bench, protocols=["range"])
    bench.restart()

    assert follower.join().generation == 1


def test_o213_an_empty_group_comes_back_empty_with_its_generation() -> None:
    bench = Bench()
    key = GroupMetadataKey(GROUP)
    value = GroupMetadataValue("consumer", 27, None, None, bench.now, [])
    bench.journal[partition_for(GROUP, 50)] = [(encode_key(key), encode_value(value))]

    bench.restart()

    assert (bench.state(), bench.generation()) == ("Empty", 27)
    assert bench.describe().protocol_type == "consumer"
    member = dynamic(bench)
    joined(member)
    assert member.generation == 28


def test_a_group_that_names_a_holder_twice_comes_back_with_one_of_them_and_shares_anew() -> None:
    # given a journal that no broker should write: two members on one instance id
    bench = Bench()
    key = GroupMetadataKey(GROUP)
    twice = [MemberMetadata(member_id, "seat", "c", "/h", 10_000, 10_000, b"", b"") for member_id in ("one", "two")]
    value = GroupMetadataValue("consumer", 3, "range", "one", bench.now, twice)
    bench.journal[partition_for(GROUP, 50)] = [(encode_key(key), encode_value(value))]
    bench.commit({T0: 1}, group="another")

    bench.restart()

    # then it is loaded, and rebalances; so are the others
    assert (bench.state(), [member.member_id for member in bench.describe().members]) == ("PreparingRebalance", ["one"])
    assert bench.told(EventKind.REBALANCE_STARTED)[-1].cause == "a member was stored twice"
    assert bench.fetch("another") == {T0: 1}


def test_o214_a_tombstone_ends_a_group_and_offsets_alone_make_a_simple_one() -> None:
    bench = Bench()
    lone_member(bench).leave()
    bench.delete()
    bench.commit({T0: 1}, group="offsets-only")

    bench.restart()

    assert bench.state() == "Dead"
    assert (bench.state("offsets-only"), bench.describe("offsets-only").protocol_type) == ("Empty", "")


def test_o215_a_deleted_offset_stays_deleted() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.delete_offsets(T0)

    bench.restart()

    assert bench.fetch() == {}


def test_o217_the_retention_of_an_empty_group_goes_on_over_a_restart() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    member.leave()
    bench.advance(RETENTION_MS - 10)
    bench.restart()

    bench.sweep()
    assert bench.fetch() == {T0: 5}
    bench.advance(10)
    bench.sweep()

    assert bench.fetch() == {}


def test_o218_ids_that_were_handed_out_are_forgotten_over_a_restart() -> None:
    bench = Bench()
    lone_member(bench)
    pending = bench.join().member_id
    bench.restart()

    assert bench.join(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_o220_a_group_that_is_too_large_by_now_rebalances_and_the_last_to_rejoin_is_out() -> None:
    bench = Bench()
    members = [Consumer(bench, protocols=["range"]) for _ in range(3)]
    stable(*members)
    bench.config = type(bench.config)(min_session_timeout_ms=100, max_size=2)

    bench.restart()
    assert bench.state() == "PreparingRebalance"
    handles = [member.join() for member in members]

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


# -- the four failure steps --------------------------------------------------------------------------------------------


def test_a_crash_before_the_generation_is_stored_leaves_the_old_one() -> None:
    bench = Bench()
    leader, follower = pair(bench, protocols=["range"])
    bench.hold()
    leader.join()
    follower.join()

    bench.restart()

    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    assert bench.generation() == 1


@pytest.mark.parametrize("who_goes_on", ["sync", "join"])
def test_a_crash_between_join_and_sync_keeps_the_generation(who_goes_on: str) -> None:
    bench = Bench()
    members = [Consumer(bench, protocols=["range"], assignment=bytes([number])) for number in (1, 2)]
    joined(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    bench.restart()
    assert (bench.state(), bench.generation()) == ("CompletingRebalance", 1)
    waiting = follower.sync()
    assert waiting.parked

    if who_goes_on == "sync":
        assert leader.sync(follower).code == ErrorCode.NONE
        assert waiting.reply.assignment == follower.assignment
    else:
        assert leader.join().parked, "whoever joins after the crash makes all rejoin"
        assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
        assert follower.join().generation == 2


def test_a_crash_after_the_assignment_is_noticed_by_nobody() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)
    follower.sync()
    bench.hold()
    leader.sync(follower)
    bench.release_one()

    bench.restart()

    assert bench.state() == "Stable"
    assert [leader.sync().code, follower.sync().code] == [ErrorCode.NONE] * 2


def test_after_a_crash_between_join_and_sync_who_does_not_sync_is_dropped() -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)
    bench.restart()

    keep_alive(1_450, member)
    assert bench.state() == "CompletingRebalance"
    bench.advance(50)

    assert (bench.state(), member.heartbeat()) == ("Empty", ErrorCode.UNKNOWN_MEMBER_ID)


# -- orders of records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_tombstones", [True, False])
def test_a_compacted_journal_says_the_same(keep_tombstones: bool) -> None:
    bench = Bench(partition_count=1)
    leader, follower = pair(bench)
    follower.restarted().join()
    leader.commit(5)
    bench.commit({T0: 1}, group="simple")
    gone = Consumer(bench, group="gone")
    stable(gone)
    gone.leave()
    bench.delete("gone")
    half = Consumer(bench, group="half")
    joined(half)
    before = {group.id: group.stored for group in bench.groups()}

    bench.compact(keep_tombstones=keep_tombstones)
    bench.restart()

    after = {group.id: group.stored for group in bench.groups()}
    assert set(after) == {"g", "simple", "half"}
    assert {name: after[name] for name in ("g", "half")} == {name: before[name] for name in ("g", "half")}
    assert after["simple"].offsets == before["simple"].offsets


def test_a_stable_group_is_one_record_of_a_compacted_journal() -> None:
    bench = Bench(partition_count=1)
    pair(bench)

    bench.compact(keep_tombstones=False)

    assert [key for key, _ in bench.journal[0]] == [encode_key(GroupMetadataKey(GROUP))]


def test_a_group_that_was_deleted_with_a_generation_that_nobody_assigned_stays_deleted() -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)
    member.leave()
    assert bench.delete() == ErrorCode.NONE

    bench.compact(keep_tombstones=False)
    bench.restart()

    assert bench.state() == "Dead"


def test_a_group_tombstone_does_not_take_offsets_along_that_have_none_of_their_own() -> None:
    bench = Bench(partition_count=1)
    bench.commit({T0: 5})
    bench.journal[0].append((encode_key(GroupMetadataKey(GROUP)), None))

    bench.restart()

    assert bench.fetch() == {T0: 5}


def test_offsets_that_were_committed_after_a_deletion_survive_a_restart() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.commit(5)
    member.leave()
    bench.delete()
    bench.commit({T0: 6})

    bench.restart()

    assert bench.fetch() == {T0: 6}


def test_the_events_say_how_long_a_group_stood_still() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    leader.join()
    keep_alive(500, follower)
    follower.join()
    for member in (leader, follower):
        member.take()
    follower.sync()
    bench.advance(100)
    leader.sync(follower)

    assert bench.told(EventKind.ASSIGNED)[-1].stood_still_ms == 600


def test_a_topic_deleted_while_the_journal_is_read_takes_its_offsets_along() -> None:
    # given a group with offsets of two topics, and a broker that starts again
    bench = Bench()
    bench.commit({("kept", 0): 1, ("gone", 0): 1})
    bench.restart(only_load=True)

    # when one of them is deleted before the group is known
    bench.topics_deleted("gone")
    bench.finish_loading()

    # then a new topic of that name begins without an offset
    assert set(bench.fetch()) == {("kept", 0)}
