"""A partition of the group log is lost: another broker serves its groups, until the partition is gained again."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.state_machine import DEAD
from holdfast.coordinator.offsets.delete import OffsetDeletion
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import connection, entry, worker
from tests.unit.coordinator.harness import DELAY_MS, GROUP, SESSION_MS, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer, dynamic, joined, keep_alive, lone_member, pair

OTHER = "another group"
GONE = ErrorCode.NOT_COORDINATOR
ORDERS = ("orders", 0)


def is_gone(harness: CoordinatorHarness, group: Group) -> None:
    """It is DEAD, and nothing of it will ever happen again."""
    assert group.state is DEAD
    assert harness.group_or_none(group.id) is not group
    assert not group.timers and not group.queued_commands and not list(group.members.all_members)


@pytest.fixture
def harness() -> CoordinatorHarness:
    made = CoordinatorHarness()
    assert made.partition_of(GROUP) != made.partition_of(OTHER)
    return made


# -- requests that wait ------------------------------------------------------------------------------------------------


def test_joins_that_wait_for_the_join_phase_are_sent_to_the_new_coordinator(harness: CoordinatorHarness) -> None:
    handles = [dynamic(harness).join(), dynamic(harness, version=4).join(), Consumer(harness, instance="S").join()]
    assert all(handle.is_pending for handle in handles)
    group, events = harness.group(), list(harness.events)

    harness.lose()

    assert [handle.code for handle in handles] == [GONE] * 3
    is_gone(harness, group)
    harness.advance(10 * SESSION_MS)
    assert harness.events == events
    assert harness.coordinator.next_deadline_ms() is None
    assert harness.group_log == {}


def test_syncs_that_wait_for_the_leader_are_sent_to_the_new_coordinator(harness: CoordinatorHarness) -> None:
    leader, *followers = members = [dynamic(harness) for _ in range(3)]
    joined(*members)
    assert leader.leads
    handles = [follower.sync() for follower in followers]
    assert all(handle.is_pending for handle in handles)

    harness.lose()

    assert [handle.code for handle in handles] == [GONE] * 2
    assert leader.sync(*followers).code is GONE


def test_a_batch_of_joins_is_answered_for_each_of_its_members(harness: CoordinatorHarness) -> None:
    handles = harness.join_all(*(entry(worker(harness, name)) for name in "abc"))
    assert all(handle.is_pending for handle in handles)

    harness.lose()

    assert [handle.code for handle in handles] == [GONE] * 3


def test_a_response_of_a_batch_that_is_not_delivered_yet_is_replaced(harness: CoordinatorHarness) -> None:
    """The standby has its response at once, and waits for the member that rejoins."""
    harness.configure(target_size=2)
    one, two = worker(harness, "1", 0), worker(harness, "2", 1)
    joined(one, two)
    leader, follower = (one, two) if one.leads else (two, one)
    follower.sync()
    leader.sync(follower)
    leader.metadata = b"other"
    handles = harness.join_all(entry(worker(harness, "standby")), entry(leader))
    assert all(handle.is_pending for handle in handles)

    harness.lose()
    harness.regain()

    assert [handle.code for handle in handles] == [GONE] * 2
    assert len(harness.describe().members) == 2


# -- an append in flight -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_request_behind_an_append_is_answered_when_that_ends(
    harness: CoordinatorHarness, failure: ErrorCode
) -> None:
    member = lone_member(harness)
    member.commit(1)
    group = harness.group()
    harness.pause_appends()
    committing = member.commit(2)

    harness.lose()
    assert committing.is_pending
    if failure:
        harness.fail_appends(failure)
    harness.resume_appends()

    assert committing.codes == [GONE]
    assert group.stored.offsets["t", 0].offset == 1, "nothing changes in an unloaded group"
    is_gone(harness, group)


@pytest.mark.parametrize("failure", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("phase", ["generation", "assignment", "empty", "replacement", "registration", "deletion"])
def test_an_append_that_ends_after_the_loss_changes_and_reports_nothing(
    harness: CoordinatorHarness, phase: str, failure: ErrorCode
) -> None:
    in_flight = _append_in_flight(harness, phase)
    group, generation, events = harness.group(), harness.generation(), list(harness.events)
    assert group.append_in_flight

    harness.lose()
    if failure:
        harness.fail_appends(failure)
    harness.resume_appends()
    harness.advance(10 * SESSION_MS)

    assert _code(in_flight) is GONE
    is_gone(harness, group)
    assert (group.generation, harness.events) == (generation, events)
    assert harness.coordinator.next_deadline_ms() is None
    assert not harness.open


def _append_in_flight(harness: CoordinatorHarness, phase: str) -> Handle:
    if phase == "generation":
        handle = Consumer(harness, instance="S").join()
        harness.pause_appends()
        harness.advance(2 * DELAY_MS)
        return handle
    if phase == "assignment":
        joined(member := dynamic(harness))
        harness.pause_appends()
        return member.sync()
    if phase == "registration":
        harness.pause_appends()
        return harness.add_members("a", "b")
    if phase == "deletion":
        harness.commit({ORDERS: 1})
        harness.pause_appends()
        return harness.delete_later()
    member = lone_member(harness, instance="S")
    harness.pause_appends()
    if phase == "replacement":
        return member.restarted().join()
    harness.leave((member.id, "S"))  # answered at once; the empty group is being stored
    return harness.configure(target_size=1)


def _code(handle: Handle) -> ErrorCode:
    reply = handle.reply[0] if isinstance(handle.reply, tuple) else handle.reply
    return reply if isinstance(reply, ErrorCode) else ErrorCode(reply.error_code)


def test_an_append_that_ends_after_the_group_is_back_does_not_touch_the_new_one(harness: CoordinatorHarness) -> None:
    member = lone_member(harness)
    harness.pause_appends()
    committing = member.commit(2)
    harness.lose()
    harness.regain()
    again = member.commit(3)

    harness.complete_one_append()

    assert committing.codes == [GONE]
    assert again.is_pending, "the append before it was another group's"
    assert harness.group().append_in_flight
    harness.resume_appends()
    assert again.codes == [ErrorCode.NONE]
    assert harness.fetch() == {("t", 0): 3}


# -- commands that are queued ------------------------------------------------------------------------------------------


def test_every_queued_request_gets_the_error_in_its_own_response(harness: CoordinatorHarness) -> None:
    leader, follower = pair(harness)
    harness.pause_appends()
    committing = leader.commit(1)
    new = dynamic(harness).join()
    batch = harness.join_all(entry(worker(harness, "a")), entry(worker(harness, "b")))
    with_code = [
        new,
        *batch,
        follower.sync(),
        harness.heartbeat_later(leader.id, 1, instance="L", client=connection()),
        harness.leave((follower.id, "F")),
        harness.add_members("c"),
        harness.cancel(),
    ]
    bare = [harness.delete_later(), harness.configure(target_size=3)]
    commit, deletion = follower.commit(2), harness.delete_offsets(ORDERS)
    assert len(harness.open) == len([*with_code, *bare]) + 3

    harness.lose()

    assert [handle.code for handle in with_code] == [GONE] * len(with_code)
    assert [handle.reply for handle in bare] == [GONE] * 2
    assert commit.codes == [GONE]
    assert deletion.reply == OffsetDeletion(GONE, {})
    assert harness.open == {committing}
    harness.resume_appends()
    assert not harness.open


def test_the_rest_of_a_batch_that_waits_for_an_append_is_answered_together_with_it(harness: CoordinatorHarness) -> None:
    members = [worker(harness, str(number), number) for number in range(3)]
    joined(*members)
    (leader,) = [member for member in members if member.leads]
    leader.sync(*(member for member in members if member is not leader))
    harness.pause_appends()
    handles = harness.join_all(*(entry(member.restarted()) for member in members))

    harness.lose()
    harness.regain()
    assert all(handle.is_pending for handle in handles)
    harness.resume_appends()

    assert [handle.code for handle in handles] == [GONE] * 3


def test_timers_that_were_due_behind_an_append_do_not_fire(harness: CoordinatorHarness) -> None:
    member = lone_member(harness)
    harness.pause_appends()
    member.commit(1)
    harness.advance(2 * SESSION_MS)
    events = list(harness.events)

    harness.lose()
    harness.resume_appends()

    assert harness.events == events


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_every_request_of_a_lost_group_is_sent_away(harness: CoordinatorHarness) -> None:
    member = lone_member(harness)
    harness.lose()

    assert member.heartbeat() is GONE
    with_code = [
        member.join(),
        member.sync(),
        harness.leave((member.id, None)),
        harness.leave((member.id, None), version=0),
        *harness.join_all(entry(worker(harness, "a"))),
        harness.add_members("a"),
        harness.cancel("a"),
    ]
    assert [handle.code for handle in with_code] == [GONE] * len(with_code)
    assert member.commit(1).codes == harness.commit({ORDERS: 1}).codes == [GONE]
    assert harness.fetch_later().reply == (GONE, {})
    assert harness.delete_offsets(ORDERS).reply == OffsetDeletion(GONE, {})
    assert harness.delete() is GONE
    assert harness.configure(target_size=1).reply is GONE
    assert harness.coordinator.group_extensions(GROUP) is GONE
    assert harness.describe().error_code == GONE
    assert harness.coordinator.list_groups([], []) == (ErrorCode.NONE, [])
    assert harness.coordinator.configured_groups() == []
    assert harness.heartbeat("", -1, group="") is ErrorCode.INVALID_GROUP_ID, "invalid everywhere"


def test_a_group_that_never_was_here_is_sent_away_too(harness: CoordinatorHarness) -> None:
    harness.lose()

    assert dynamic(harness).join().code is GONE
    assert harness.group_or_none() is None


def test_a_connection_that_closes_after_the_loss_is_no_news(harness: CoordinatorHarness) -> None:
    client = connection()
    lone_member(harness, client=client)
    harness.lose()

    harness.disconnect(client)

    assert client.connection is not None and not client.connection.members


def test_groups_of_other_partitions_are_untouched(harness: CoordinatorHarness) -> None:
    """The control: pending, queued and stored, all of it goes on."""
    stable_member = lone_member(harness, group=OTHER)
    joining = dynamic(harness, group=OTHER).join()
    assert joining.is_pending
    lone_member(harness)
    harness.pause_appends()
    committing = stable_member.commit(5)
    beating = harness.heartbeat_later(stable_member.id, 1, group=OTHER, client=connection())

    harness.lose()

    assert joining.is_pending and committing.is_pending and beating.is_pending
    harness.resume_appends()
    assert committing.codes == [ErrorCode.NONE]
    assert beating.code is ErrorCode.REBALANCE_IN_PROGRESS
    stable_member.join()
    assert joining.generation == 2
    assert [group.group_id for group in harness.coordinator.list_groups([], [])[1]] == [OTHER]
    assert harness.fetch(OTHER) == {("t", 0): 5}


# -- gained again ------------------------------------------------------------------------------------------------------


def test_a_partition_that_is_gained_again_has_its_groups_as_they_are_stored(harness: CoordinatorHarness) -> None:
    leader, follower = pair(harness)
    leader.commit(7)
    harness.lose()
    assert leader.heartbeat() is GONE

    harness.regain()

    assert (harness.state(), harness.generation()) == ("Stable", 1)
    assert harness.fetch() == {("t", 0): 7}
    assert [leader.heartbeat(), follower.heartbeat()] == [ErrorCode.NONE] * 2
    assert leader.commit(8).codes == [ErrorCode.NONE]
    keep_alive(2 * SESSION_MS, leader, follower)
    assert (harness.state(), harness.generation()) == ("Stable", 1)
    harness.advance(2 * SESSION_MS)
    assert leader.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "the sessions are new ones, and end"


def test_what_another_broker_stored_meanwhile_counts(harness: CoordinatorHarness) -> None:
    member = lone_member(harness)
    member.commit(1)
    other_broker = CoordinatorHarness()
    harness.lose()
    other_broker.group_log = harness.group_log
    other_broker.restart()
    other_broker.commit({("t", 0): 9}, member_id=member.id, generation=1)
    harness.durability = other_broker.durability

    harness.regain()

    assert harness.fetch() == {("t", 0): 9}


def test_a_partition_that_is_lost_while_it_is_loaded_is_not_served(harness: CoordinatorHarness) -> None:
    member = lone_member(harness)
    harness.commit({ORDERS: 1}, group=OTHER)
    harness.restart(only_load=True)
    harness.replay(harness.partition_of())
    assert member.heartbeat() is ErrorCode.NONE, "as in Kafka, while it is loaded"

    harness.lose()

    assert member.heartbeat() is GONE
    assert harness.describe().error_code == GONE
    assert harness.coordinator.next_deadline_ms() is None
    assert harness.describe(OTHER).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.regain()
    assert member.heartbeat() is ErrorCode.NONE
    assert harness.state() == "Stable"


def test_a_topic_deleted_during_a_load_that_was_given_up_is_forgotten(harness: CoordinatorHarness) -> None:
    """It may exist again by the time of the next load, with offsets that count."""
    harness.commit({ORDERS: 1})
    harness.restart()
    harness.coordinator.load_started([harness.partition_of()])
    harness.topics_deleted("orders")
    harness.lose()

    harness.regain()

    assert harness.fetch() == {ORDERS: 1}
