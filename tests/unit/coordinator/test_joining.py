"""JoinGroup in the coordinator: §6.B to §6.E of the group semantics, by number.

Not here: 1, 4, 6, 7, 8 (§6.A) are ApiVersions and FindCoordinator, which the coordinator never sees; 9 is a group of
another broker, and there is only this one.
"""

from __future__ import annotations

import pytest

from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import encode
from tests.unit.coordinator.bench import Bench, Handle
from tests.unit.coordinator.scene import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, synced

# -- 6.B validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", [None, "A"])
@pytest.mark.parametrize("session_ms", [pytest.param(99, id="b11-min-1"), pytest.param(1_800_001, id="b12-max+1")])
def test_b11_b12_a_session_timeout_out_of_range(session_ms: int, instance: str | None) -> None:
    bench = Bench()

    refused = bench.join("somebody", instance=instance, session_ms=session_ms)

    assert refused.code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert refused.member_id == "somebody"
    assert bench.state() == "Dead"


def test_b12_a_session_of_thirty_minutes_is_allowed() -> None:
    bench = Bench()

    assert bench.join(instance="A", session_ms=1_800_000).parked


def test_an_empty_group_id_is_invalid() -> None:
    assert Bench().join(group="").code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("instance", [None, "A"])
def test_b14_a_member_id_of_a_group_that_does_not_exist(instance: str | None) -> None:
    bench = Bench()

    refused = bench.join("x", instance=instance)

    assert (refused.code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "x")
    assert bench.state() == "Dead"


@pytest.mark.parametrize("instance", [None, "A"])
def test_b16_an_empty_protocol_type(instance: str | None) -> None:
    assert Bench().join(instance=instance, protocol_type="").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("instance", [None, "A"])
def test_b17_an_empty_protocol_list(instance: str | None) -> None:
    assert Bench().join(instance=instance, protocols=()).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_b19_no_protocol_in_common_with_those_who_are_parked() -> None:
    bench = Bench()
    parked = bench.join(instance="A", protocols=["range"])

    refused = bench.join(instance="B", protocols=["roundrobin"])

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    bench.advance(200)
    assert (parked.code, len(parked.reply.members)) == (ErrorCode.NONE, 1)


def test_b19_another_protocol_type_than_the_members() -> None:
    bench = Bench()
    bench.join(instance="A")

    assert bench.join(instance="B", protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(10))
def test_b21_every_join_error_fits_its_version(version: int) -> None:
    bench = Bench()

    refused = bench.join("x", version=version)

    assert refused.reply.protocol_type is None
    assert refused.reply.protocol_name == (None if version >= 7 else "")
    assert refused.generation == -1
    assert encode(refused.reply, version)


def test_b22_a_fifth_member_of_a_group_of_four() -> None:
    bench = Bench(max_size=4)
    members = [Consumer(bench, version=3) for _ in range(4)]
    joined(*members)
    assert bench.state() == "CompletingRebalance"

    refused = bench.join(version=3)

    assert (refused.code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert bench.state() == "CompletingRebalance"


def test_b24_five_static_members_where_four_fit() -> None:
    bench = Bench(max_size=4)

    handles = [bench.join(instance=f"i{number}") for number in range(5)]

    assert handles[4].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.advance(400)
    assert [handle.code for handle in handles[:4]] == [ErrorCode.NONE] * 4


def test_b25_members_that_are_parked_may_join_again_in_a_full_group() -> None:
    bench = Bench(max_size=2)
    members = [dynamic(bench), dynamic(bench)]
    first = [member.join() for member in members]

    again = [member.join() for member in members]

    assert [handle.code for handle in first] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2, "superseded, and told so"
    bench.advance(400)
    assert [handle.code for handle in again] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize("member_id", ["", "known"])
def test_b27_a_group_that_dies_while_the_join_waits(member_id: str) -> None:
    bench = Bench()
    bench.commit({("t", 0): 1})
    bench.hold()
    deleted = bench.delete_later()

    waiting = bench.join(member_id, version=3)
    assert waiting.parked
    bench.release()

    assert deleted.reply == ErrorCode.NONE
    assert waiting.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() == "Dead"


def test_b28_join_v0_has_no_rebalance_timeout_so_the_session_serves() -> None:
    bench = Bench()
    old = Consumer(bench, version=0, session_ms=700)
    stable(old)

    newcomer = Consumer(bench, version=3, session_ms=60_000, rebalance_ms=100)
    handle = newcomer.join()
    keep_alive(600, old)
    assert handle.parked
    keep_alive(100, old)

    assert handle.code == ErrorCode.NONE, "the join phase lasted for the longest rebalance timeout: 700 ms"


# -- 6.C ids that are handed out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 10))
def test_c29_a_new_dynamic_member_is_sent_back_with_an_id(version: int) -> None:
    bench = Bench()

    sent_back = bench.join(version=version)

    assert sent_back.code == ErrorCode.MEMBER_ID_REQUIRED
    assert sent_back.member_id.startswith("cid-")
    assert (bench.state(), bench.describe().members) == ("Empty", [])


@pytest.mark.parametrize("version", range(4))
def test_c29_before_v4_nobody_is_sent_back(version: int) -> None:
    assert Bench().join(version=version).parked


def test_c31_with_the_id_it_becomes_a_member() -> None:
    bench = Bench()
    sent_back = bench.join()

    handle = bench.join(sent_back.member_id)
    bench.advance(200)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 1)
    assert handle.member_id == sent_back.member_id


def test_c33_an_id_whose_owner_never_returns_costs_the_group_nothing() -> None:
    bench = Bench()
    member = lone_member(bench)
    sent_back = bench.join(session_ms=1_000)

    keep_alive(1_200, member)

    assert (bench.state(), bench.generation()) == ("Stable", 1)
    assert member.heartbeat() == ErrorCode.NONE
    assert bench.join(sent_back.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_c35_the_join_phase_waits_for_an_id_only_for_its_session() -> None:
    bench = Bench()
    member = lone_member(bench, rebalance_ms=60_000)
    bench.join(session_ms=100)
    handle = member.join()
    assert handle.parked, "an id has been handed out and is waited for"

    bench.advance(99)
    assert handle.parked
    bench.advance(1)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_c35_in_the_initial_delay_the_last_id_that_expires_ends_the_join_phase() -> None:
    bench = Bench()
    bench.join(session_ms=100)
    handle = bench.join(instance="A")

    bench.advance(99)
    assert handle.parked
    bench.advance(1)

    assert handle.code == ErrorCode.NONE, "as Kafka's new coordinator: all who are left are parked"


def test_c37_a_pending_id_is_no_member() -> None:
    bench = Bench()
    lone_member(bench)
    pending = bench.join().member_id

    assert bench.heartbeat(pending, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(pending, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit({("t", 0): 1}, member_id=pending, generation=1).codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_c38_a_pending_id_together_with_an_instance_id() -> None:
    bench = Bench()
    pending = bench.join().member_id

    assert bench.join(pending, instance="A").code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.join(pending).parked, "it is still pending"


def test_c39_an_id_is_pending_or_a_member_never_both() -> None:
    bench = Bench()
    member = dynamic(bench)
    member.join()
    assert member.id not in bench.group().roster.pending

    bench.advance(200)
    member.take()
    assert member.leave() == ErrorCode.NONE

    assert member.id not in bench.group().roster.pending
    assert bench.join(member.id).code == ErrorCode.UNKNOWN_MEMBER_ID


# -- 6.D the initial delay ---------------------------------------------------------------------------------------------


def test_d40_the_first_join_of_an_empty_group_waits_for_the_delay() -> None:
    bench = Bench()
    handle = bench.join(instance="A")

    bench.advance(199)
    assert handle.parked
    bench.advance(1)

    assert handle.code == ErrorCode.NONE


def test_d40_without_a_delay_it_is_answered_at_once() -> None:
    assert Bench(delay_ms=0).join(instance="A").code == ErrorCode.NONE


def test_d42_who_comes_during_the_delay_prolongs_it_up_to_the_rebalance_timeout() -> None:
    bench = Bench()
    first = [bench.join(instance=name, rebalance_ms=400) for name in "AB"]
    bench.advance(200)
    assert all(handle.parked for handle in first), "B came during the delay"

    bench.advance(10)
    late = bench.join(instance="C", rebalance_ms=400)
    bench.advance(189)
    assert all(handle.parked for handle in (*first, late))
    bench.advance(1)

    assert [handle.code for handle in (*first, late)] == [ErrorCode.NONE] * 3


@pytest.mark.parametrize(
    ("rebalance_ms", "joins_at", "answered_at"),
    [
        pytest.param(1_500, [0], 200, id="alone"),
        pytest.param(1_500, [0, 100], 400, id="one more"),
        pytest.param(1_500, [0, 100, 300], 600, id="one more in each period"),
        pytest.param(500, [0, 100, 300, 450], 500, id="never longer than R"),
        pytest.param(100, [0, 50], 200, id="R below the delay"),
    ],
)
def test_d42_the_arithmetic_of_the_delay(rebalance_ms: int, joins_at: list[int], answered_at: int) -> None:
    bench = Bench()
    handles: list[Handle] = []
    for number, at_ms in enumerate(joins_at):
        bench.advance(at_ms - (joins_at[number - 1] if number else 0))
        handles.append(bench.join(instance=f"i{number}", rebalance_ms=rebalance_ms))

    bench.advance(answered_at - joins_at[-1] - 1)
    assert all(handle.parked for handle in handles)
    bench.advance(1)

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * len(handles)


def test_d44_that_all_have_joined_does_not_shorten_the_delay() -> None:
    bench = Bench()
    members = [dynamic(bench), dynamic(bench)]
    handles = [member.join() for member in members]

    bench.advance(199)

    assert all(handle.parked for handle in handles)


def test_d44_a_group_that_returns_from_empty_waits_again() -> None:
    bench = Bench()
    member = lone_member(bench)
    member.leave()

    handle = bench.join(instance="A")
    bench.advance(199)
    assert handle.parked
    bench.advance(1)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 3)


def test_d46_a_group_with_members_has_no_delay() -> None:
    bench = Bench()
    member = lone_member(bench)
    newcomer = dynamic(bench)
    handle = newcomer.join()
    assert handle.parked

    again = member.join()

    assert [handle.code, again.code] == [ErrorCode.NONE] * 2
    assert {handle.generation, again.generation} == {2}


# -- 6.E the end of the join phase -------------------------------------------------------------------------------------


def test_e47_the_first_generation_is_1() -> None:
    bench = Bench()
    joined(dynamic(bench))

    assert bench.generation() == 1


def test_e49_the_leader_that_rejoins_makes_a_generation() -> None:
    bench = Bench()
    member = lone_member(bench)

    assert member.join().generation == 2


def test_e51_a_follower_with_other_metadata_begins_a_rebalance() -> None:
    bench = Bench()
    _, follower = pair(bench)
    follower.metadata = b"other"

    assert follower.join().parked
    assert bench.state() == "PreparingRebalance"


def test_e52_who_lost_the_answer_gets_it_again() -> None:
    bench = Bench()
    leader, follower = Consumer(bench, instance="L"), Consumer(bench, instance="F")
    joined(leader, follower)

    again = [leader.join(), follower.join()]

    assert [handle.generation for handle in again] == [1, 1]
    assert [len(handle.reply.members) for handle in again] == [2, 0]
    assert not any(handle.reply.skip_assignment for handle in again)
    assert bench.state() == "CompletingRebalance"


def test_e54_a_dynamic_member_that_does_not_rejoin_in_time_is_out() -> None:
    bench = Bench()
    members = [dynamic(bench), dynamic(bench)]
    stable(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    handle = leader.join()
    keep_alive(1_450, follower)
    assert handle.parked
    bench.advance(50)

    assert (handle.code, handle.generation, len(handle.reply.members)) == (ErrorCode.NONE, 2, 1)
    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_e56_a_group_of_static_members_waits_when_all_are_away() -> None:
    bench = Bench()
    leader, follower = pair(bench, session_ms=60_000, rebalance_ms=1_000)
    extra = dynamic(bench, session_ms=60_000, rebalance_ms=1_000)
    extra.join()
    extra.leave()
    assert bench.state() == "PreparingRebalance"

    bench.advance(3_500)
    assert (bench.state(), bench.generation()) == ("PreparingRebalance", 1)
    handles = [leader.join(), follower.join()]

    assert [handle.generation for handle in handles] == [2, 2]


def test_e57_the_protocol_with_the_most_first_votes_wins() -> None:
    bench = Bench()
    orders = [("range", "rr"), ("rr", "range"), ("rr", "range")]
    members = [Consumer(bench, protocols=order) for order in orders]

    joined(*members)

    assert {member.protocol_name for member in members} == {"rr"}


def test_e57_only_protocols_that_all_support_are_candidates() -> None:
    bench = Bench()
    members = [Consumer(bench, protocols=order) for order in [("a", "b"), ("a", "b"), ("b", "c")]]

    joined(*members)

    assert {member.protocol_name for member in members} == {"b"}


@pytest.mark.parametrize("version", range(10))
def test_e59_the_answer_carries_the_protocol(version: int) -> None:
    bench = Bench()
    member = Consumer(bench, version=version)
    handle = member.join()
    bench.advance(200)

    assert (handle.reply.protocol_type, handle.reply.protocol_name) == ("consumer", "range")
    assert encode(handle.reply, version)


def test_e61_after_its_join_a_new_member_lives_by_its_session() -> None:
    bench = Bench()
    member = lone_member(bench, version=3, session_ms=400_000)

    bench.advance(399_999)
    assert bench.state() == "Stable", "five minutes are for the join only"
    bench.advance(1)

    assert bench.state() == "Empty"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_e62_only_the_leader_sees_the_members() -> None:
    bench = Bench()
    members = [Consumer(bench, version=8) for _ in range(3)]

    joined(*members)

    assert sorted(len(member.members) for member in members) == [0, 0, 3]
    (leader,) = [member for member in members if member.leads]
    assert {entry.member_id for entry in leader.members} == {member.id for member in members}


def test_e55_the_leader_that_rejoined_in_time_keeps_the_job() -> None:
    bench = Bench()
    first, second = pair(bench, session_ms=60_000)
    second.metadata = b"changed"
    second.join()
    bench.advance(1_500)
    second.take()
    assert second.leads, "the first was away"
    second.sync(first)

    first.join()  # back under its own id, and before the other in every list
    second.join()
    handle = first.join()
    second.take()

    assert (second.generation, second.leads) == (3, True)
    assert handle.reply.leader == second.id


def test_e63_an_old_leader_gets_the_list_without_instance_ids() -> None:
    bench = Bench()
    leader = Consumer(bench, version=4)
    handle = leader.join()
    follower = Consumer(bench, instance="F")
    follower.join()
    bench.advance(400)
    leader.take()
    assert leader.leads

    assert len(handle.reply.members) == 2
    assert encode(handle.reply, 4), "it can be written although a member has an instance id"
    synced_group = [follower, leader]
    follower.take()
    synced(*synced_group)
