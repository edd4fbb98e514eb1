"""JoinGroup in the coordinator. The numbers are those of the behaviours in `tests/conformance`.

Not here: 1, 4, 6, 7 and 8 are ApiVersions and FindCoordinator, which the coordinator does not handle. 9 is a group of
another broker, and there is only one broker.
"""

from __future__ import annotations

import pytest

from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import encode
from tests.unit.coordinator.harness import CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair, stable, synced

# -- validation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", [None, "A"])
@pytest.mark.parametrize("session_ms", [pytest.param(99, id="b11-min-1"), pytest.param(1_800_001, id="b12-max+1")])
def test_a_session_timeout_out_of_range(session_ms: int, instance: str | None) -> None:
    harness = CoordinatorHarness()

    refused = harness.join("somebody", instance=instance, session_ms=session_ms)

    assert refused.code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert refused.member_id == "somebody"
    assert harness.state() == "Dead"


def test_a_session_of_thirty_minutes_is_allowed() -> None:
    harness = CoordinatorHarness()

    assert harness.join(instance="A", session_ms=1_800_000).is_pending


def test_an_empty_group_id_is_invalid() -> None:
    assert CoordinatorHarness().join(group="").code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("instance", [None, "A"])
def test_a_member_id_of_a_group_that_does_not_exist(instance: str | None) -> None:
    harness = CoordinatorHarness()

    refused = harness.join("x", instance=instance)

    assert (refused.code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "x")
    assert harness.state() == "Dead"


@pytest.mark.parametrize("instance", [None, "A"])
def test_an_empty_protocol_type(instance: str | None) -> None:
    assert CoordinatorHarness().join(instance=instance, protocol_type="").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("instance", [None, "A"])
def test_an_empty_protocol_list(instance: str | None) -> None:
    assert CoordinatorHarness().join(instance=instance, protocols=()).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_no_protocol_in_common_with_the_parked_joins() -> None:
    harness = CoordinatorHarness()
    parked = harness.join(instance="A", protocols=["range"])

    refused = harness.join(instance="B", protocols=["roundrobin"])

    assert refused.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.advance(200)
    assert (parked.code, len(parked.reply.members)) == (ErrorCode.NONE, 1)


def test_another_protocol_type_than_the_members() -> None:
    harness = CoordinatorHarness()
    harness.join(instance="A")

    assert harness.join(instance="B", protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(10))
def test_every_join_error_fits_its_version(version: int) -> None:
    harness = CoordinatorHarness()

    refused = harness.join("x", version=version)

    assert refused.reply.protocol_type is None
    assert refused.reply.protocol_name == (None if version >= 7 else "")
    assert refused.generation == -1
    assert encode(refused.reply, version)


def test_a_fifth_member_of_a_group_of_four() -> None:
    harness = CoordinatorHarness(max_size=4)
    members = [Consumer(harness, version=3) for _ in range(4)]
    joined(*members)
    assert harness.state() == "CompletingRebalance"

    refused = harness.join(version=3)

    assert (refused.code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.state() == "CompletingRebalance"


def test_five_static_members_where_four_fit() -> None:
    harness = CoordinatorHarness(max_size=4)

    handles = [harness.join(instance=f"i{number}") for number in range(5)]

    assert handles[4].code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.advance(400)
    assert [handle.code for handle in handles[:4]] == [ErrorCode.NONE] * 4


def test_members_that_are_parked_may_join_again_in_a_full_group() -> None:
    harness = CoordinatorHarness(max_size=2)
    members = [dynamic(harness), dynamic(harness)]
    first = [member.join() for member in members]

    again = [member.join() for member in members]

    assert [handle.code for handle in first] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2, "superseded, and reported so"
    harness.advance(400)
    assert [handle.code for handle in again] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize("member_id", ["", "known"])
def test_a_group_that_dies_while_the_join_waits(member_id: str) -> None:
    harness = CoordinatorHarness()
    harness.commit({("t", 0): 1})
    harness.pause_appends()
    deleted = harness.delete_later()

    waiting = harness.join(member_id, version=3)
    assert waiting.is_pending
    harness.resume_appends()

    assert deleted.reply == ErrorCode.NONE
    assert waiting.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.state() == "Dead"


def test_join_v0_has_no_rebalance_timeout_so_the_session_serves() -> None:
    harness = CoordinatorHarness()
    old = Consumer(harness, version=0, session_ms=700)
    stable(old)

    newcomer = Consumer(harness, version=3, session_ms=60_000, rebalance_ms=100)
    handle = newcomer.join()
    keep_alive(600, old)
    assert handle.is_pending
    keep_alive(100, old)

    assert handle.code == ErrorCode.NONE, "the join phase lasted for the longest rebalance timeout: 700 ms"


# -- ids that are handed out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_dynamic_member_is_sent_back_with_an_id(version: int) -> None:
    harness = CoordinatorHarness()

    sent_back = harness.join(version=version)

    assert sent_back.code == ErrorCode.MEMBER_ID_REQUIRED
    assert sent_back.member_id.startswith("cid-")
    assert (harness.state(), harness.describe().members) == ("Empty", [])


@pytest.mark.parametrize("version", range(4))
def test_before_v4_no_member_has_to_join_again_with_its_id(version: int) -> None:
    assert CoordinatorHarness().join(version=version).is_pending


def test_with_the_id_it_becomes_a_member() -> None:
    harness = CoordinatorHarness()
    sent_back = harness.join()

    handle = harness.join(sent_back.member_id)
    harness.advance(200)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 1)
    assert handle.member_id == sent_back.member_id


def test_an_id_whose_owner_never_returns_costs_the_group_nothing() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    sent_back = harness.join(session_ms=1_000)

    keep_alive(1_200, member)

    assert (harness.state(), harness.generation()) == ("Stable", 1)
    assert member.heartbeat() == ErrorCode.NONE
    assert harness.join(sent_back.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_waits_for_an_id_only_for_its_session() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, rebalance_ms=60_000)
    harness.join(session_ms=100)
    handle = member.join()
    assert handle.is_pending, "an id has been handed out and is waited for"

    harness.advance(99)
    assert handle.is_pending
    harness.advance(1)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 2)


def test_in_the_initial_delay_the_last_id_that_expires_ends_the_join_phase() -> None:
    harness = CoordinatorHarness()
    harness.join(session_ms=100)
    handle = harness.join(instance="A")

    harness.advance(99)
    assert handle.is_pending
    harness.advance(1)

    assert handle.code == ErrorCode.NONE, "as Kafka's new coordinator: all who are left are parked"


def test_a_pending_id_is_no_member() -> None:
    harness = CoordinatorHarness()
    lone_member(harness)
    pending = harness.join().member_id

    assert harness.heartbeat(pending, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync(pending, 1).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit({("t", 0): 1}, member_id=pending, generation=1).codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_pending_id_together_with_an_instance_id() -> None:
    harness = CoordinatorHarness()
    pending = harness.join().member_id

    assert harness.join(pending, instance="A").code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.join(pending).is_pending, "it is still pending"


def test_an_id_is_pending_or_a_member_never_both() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    member.join()
    assert member.id not in harness.group().members.pending_member_ids

    harness.advance(200)
    member.take()
    assert member.leave() == ErrorCode.NONE

    assert member.id not in harness.group().members.pending_member_ids
    assert harness.join(member.id).code == ErrorCode.UNKNOWN_MEMBER_ID


# -- the initial delay -------------------------------------------------------------------------------------------------


def test_the_first_join_of_an_empty_group_waits_for_the_delay() -> None:
    harness = CoordinatorHarness()
    handle = harness.join(instance="A")

    harness.advance(199)
    assert handle.is_pending
    harness.advance(1)

    assert handle.code == ErrorCode.NONE


def test_without_a_delay_it_is_answered_at_once() -> None:
    assert CoordinatorHarness(delay_ms=0).join(instance="A").code == ErrorCode.NONE


def test_joins_during_the_delay_extend_it_up_to_the_rebalance_timeout() -> None:
    harness = CoordinatorHarness()
    first = [harness.join(instance=name, rebalance_ms=400) for name in "AB"]
    harness.advance(200)
    assert all(handle.is_pending for handle in first), "B came during the delay"

    harness.advance(10)
    late = harness.join(instance="C", rebalance_ms=400)
    harness.advance(189)
    assert all(handle.is_pending for handle in (*first, late))
    harness.advance(1)

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
def test_the_arithmetic_of_the_delay(rebalance_ms: int, joins_at: list[int], answered_at: int) -> None:
    harness = CoordinatorHarness()
    handles: list[Handle] = []
    for number, at_ms in enumerate(joins_at):
        harness.advance(at_ms - (joins_at[number - 1] if number else 0))
        handles.append(harness.join(instance=f"i{number}", rebalance_ms=rebalance_ms))

    harness.advance(answered_at - joins_at[-1] - 1)
    assert all(handle.is_pending for handle in handles)
    harness.advance(1)

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * len(handles)


def test_that_all_have_joined_does_not_shorten_the_delay() -> None:
    harness = CoordinatorHarness()
    members = [dynamic(harness), dynamic(harness)]
    handles = [member.join() for member in members]

    harness.advance(199)

    assert all(handle.is_pending for handle in handles)


def test_a_group_that_returns_from_empty_waits_again() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    member.leave()

    handle = harness.join(instance="A")
    harness.advance(199)
    assert handle.is_pending
    harness.advance(1)

    assert (handle.code, handle.generation) == (ErrorCode.NONE, 3)


def test_a_group_with_members_has_no_delay() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    newcomer = dynamic(harness)
    handle = newcomer.join()
    assert handle.is_pending

    again = member.join()

    assert [handle.code, again.code] == [ErrorCode.NONE] * 2
    assert {handle.generation, again.generation} == {2}


# -- the end of the join phase -----------------------------------------------------------------------------------------


def test_the_first_generation_is_1() -> None:
    harness = CoordinatorHarness()
    joined(dynamic(harness))

    assert harness.generation() == 1


def test_the_leader_that_rejoins_makes_a_generation() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)

    assert member.join().generation == 2


def test_a_follower_with_other_metadata_begins_a_rebalance() -> None:
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    follower.metadata = b"other"

    assert follower.join().is_pending
    assert harness.state() == "PreparingRebalance"


def test_a_repeated_join_gets_the_same_answer_again() -> None:
    harness = CoordinatorHarness()
    leader, follower = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    joined(leader, follower)

    again = [leader.join(), follower.join()]

    assert [handle.generation for handle in again] == [1, 1]
    assert [len(handle.reply.members) for handle in again] == [2, 0]
    assert not any(handle.reply.skip_assignment for handle in again)
    assert harness.state() == "CompletingRebalance"


def test_a_dynamic_member_that_does_not_rejoin_in_time_is_out() -> None:
    harness = CoordinatorHarness()
    members = [dynamic(harness), dynamic(harness)]
    stable(*members)
    leader, follower = sorted(members, key=lambda member: not member.leads)

    handle = leader.join()
    keep_alive(1_450, follower)
    assert handle.is_pending
    harness.advance(50)

    assert (handle.code, handle.generation, len(handle.reply.members)) == (ErrorCode.NONE, 2, 1)
    assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_static_members_waits_when_all_are_away() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness, session_ms=60_000, rebalance_ms=1_000)
    extra = dynamic(harness, session_ms=60_000, rebalance_ms=1_000)
    extra.join()
    extra.leave()
    assert harness.state() == "PreparingRebalance"

    harness.advance(3_500)
    assert (harness.state(), harness.generation()) == ("PreparingRebalance", 1)
    handles = [leader.join(), follower.join()]

    assert [handle.generation for handle in handles] == [2, 2]


def test_the_protocol_with_the_most_first_votes_wins() -> None:
    harness = CoordinatorHarness()
    orders = [("range", "rr"), ("rr", "range"), ("rr", "range")]
    members = [Consumer(harness, protocols=order) for order in orders]

    joined(*members)

    assert {member.protocol_name for member in members} == {"rr"}


def test_only_protocols_that_all_support_are_candidates() -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, protocols=order) for order in [("a", "b"), ("a", "b"), ("b", "c")]]

    joined(*members)

    assert {member.protocol_name for member in members} == {"b"}


@pytest.mark.parametrize("version", range(10))
def test_the_answer_carries_the_protocol(version: int) -> None:
    harness = CoordinatorHarness()
    member = Consumer(harness, version=version)
    handle = member.join()
    harness.advance(200)

    assert (handle.reply.protocol_type, handle.reply.protocol_name) == ("consumer", "range")
    assert encode(handle.reply, version)


def test_after_its_join_a_new_member_expires_by_its_session() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, version=3, session_ms=400_000)

    harness.advance(399_999)
    assert harness.state() == "Stable", "five minutes are for the join only"
    harness.advance(1)

    assert harness.state() == "Empty"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_sees_the_members() -> None:
    harness = CoordinatorHarness()
    members = [Consumer(harness, version=8) for _ in range(3)]

    joined(*members)

    assert sorted(len(member.members) for member in members) == [0, 0, 3]
    (leader,) = [member for member in members if member.leads]
    assert {entry.member_id for entry in leader.members} == {member.id for member in members}


def test_the_leader_that_rejoined_in_time_keeps_the_job() -> None:
    harness = CoordinatorHarness()
    first, second = pair(harness, session_ms=60_000)
    second.metadata = b"changed"
    second.join()
    harness.advance(1_500)
    second.take()
    assert second.leads, "the first was away"
    second.sync(first)

    first.join()  # back under its own id, and before the other in every list
    second.join()
    handle = first.join()
    second.take()

    assert (second.generation, second.leads) == (3, True)
    assert handle.reply.leader == second.id


def test_an_old_leader_gets_the_list_without_instance_ids() -> None:
    harness = CoordinatorHarness()
    leader = Consumer(harness, version=4)
    handle = leader.join()
    follower = Consumer(harness, instance="F")
    follower.join()
    harness.advance(400)
    leader.take()
    assert leader.leads

    assert len(handle.reply.members) == 2
    assert encode(handle.reply, 4), "it can be written although a member has an instance id"
    synced_group = [follower, leader]
    follower.take()
    synced(*synced_group)
