"""Standbys: members past `target.group.size` have no assignment and take part in no rebalance."""

from __future__ import annotations

from holdfast.coordinator.classic.state_machine import EMPTY, PREPARING, STABLE
from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    REBALANCE,
    UNKNOWN,
    all_rejoin,
    is_standby,
    partitions,
    reads,
    rebalances,
    worker,
)
from tests.unit.coordinator.harness import GROUP, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import keep_alive, stable
from tests.unit.coordinator.standby_group import StandbyGroup, no_rebalance


def test_members_past_the_target_are_standbys_without_a_rebalance(a_world: StandbyGroup) -> None:
    assert no_rebalance(a_world)
    assert a_world.harness.extensions().standbys == [a_world.standby.id, a_world.other.id]
    keep_alive(SESSION_MS * 3, a_world.leader, a_world.follower, a_world.standby, a_world.other)
    assert no_rebalance(a_world)
    assert [event.cause.code for event in a_world.harness.events_of(EventKind.STANDBY_ADDED)] == [
        CauseCode.ENOUGH_MEMBERS
    ] * 2


def test_without_a_target_they_are_members_like_any_other() -> None:
    """The control."""
    harness = CoordinatorHarness()
    one = worker(harness, "1", 0)
    stable(one)
    before = rebalances(harness)

    assert worker(harness, "2", 1).join().is_pending

    assert rebalances(harness) == before + 1


def test_a_standby_joins_quietly_whatever_its_bytes(a_world: StandbyGroup) -> None:
    a_world.standby.metadata = reads("t", owns=[5], generation=1)

    assert not a_world.standby.join().is_pending
    assert partitions(a_world.standby.sync()) == set()

    assert no_rebalance(a_world)


def test_a_standby_is_not_in_the_leaders_list_and_is_not_waited_for(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    # both standbys are asked to rejoin; neither does, and the vacancy is not filled
    keep_alive(SESSION_MS + 100, a_world.leader)

    assert a_world.harness.group().state is PREPARING
    a_world.leader.join()
    a_world.leader.take()
    assert a_world.leader.leads


def test_in_an_old_generation_a_standby_must_join_the_new_one(a_world: StandbyGroup) -> None:
    harness, standby = a_world.harness, a_world.standby
    a_world.leader.metadata = reads("t", "u")
    a_world.leader.join()
    a_world.follower.join()
    a_world.leader.take()
    a_world.follower.take()
    assert a_world.leader.generation == 2
    a_world.leader.sync(a_world.follower)

    assert standby.heartbeat() is REBALANCE
    assert not standby.join().is_pending
    assert standby.generation == 2
    assert standby.heartbeat() is ErrorCode.NONE
    assert harness.group().state is STABLE


def test_when_an_empty_group_forms_the_surplus_becomes_standbys() -> None:
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    members = [worker(harness, str(number), number) for number in range(4)]
    for member in members:
        assert member.join().is_pending
    harness.advance(1_000)

    for member in members:
        member.take()
        assert member.generation == 1
    leader = next(member for member in members if member.leads)
    assert len(leader.members) == 2
    assert len(harness.extensions().standbys) == 2
    assert partitions(members[3].sync()) == set()


def test_a_group_of_another_type_has_no_standbys() -> None:
    harness = CoordinatorHarness()
    harness.configure(target_size=1)
    harness.join(protocol_type="connect", instance="a")
    harness.advance(1_000)

    assert harness.join(protocol_type="connect", instance="b").is_pending


def test_the_size_limit_of_the_broker_counts_standbys() -> None:
    harness = CoordinatorHarness(max_size=2)
    harness.configure(target_size=1)
    one, two, three = (worker(harness, str(number), number) for number in range(3))
    stable(one)
    is_standby(two)

    assert three.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED


# -- configs -----------------------------------------------------------------------------------------------------------


def test_raising_the_target_is_one_rebalance(a_world: StandbyGroup) -> None:
    a_world.harness.configure(target_size=4)

    assert rebalances(a_world.harness) == a_world.began + 1
    all_rejoin(a_world.leader, a_world.follower, a_world.standby, a_world.other)
    assert rebalances(a_world.harness) == a_world.began + 1
    assert not a_world.harness.extensions().standbys


def test_lowering_the_target_removes_the_youngest_members_that_return_as_standbys(a_world: StandbyGroup) -> None:
    a_world.harness.configure(target_size=1)

    assert rebalances(a_world.harness) == a_world.began + 1
    assert a_world.follower.heartbeat() is UNKNOWN
    all_rejoin(a_world.leader)
    back = a_world.follower.restarted()
    is_standby(back)
    assert rebalances(a_world.harness) == a_world.began + 1
    assert len(a_world.harness.extensions().standbys) == 3


def test_without_a_target_the_standbys_are_taken_in(a_world: StandbyGroup) -> None:
    a_world.harness.configure(target_size=0)

    all_rejoin(a_world.leader, a_world.follower, a_world.standby, a_world.other)


def test_configs_of_an_unused_group_create_no_group(a_world: StandbyGroup) -> None:
    harness = a_world.harness
    harness.configure(target_size=7, group="unused")

    harness.restart()

    assert harness.describe("unused", version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP in {group.group_id for group in harness.coordinator.list_groups([], [])[1]}
    assert "unused" not in {group.group_id for group in harness.coordinator.list_groups([], [])[1]}
    assert harness.delete("unused") is ErrorCode.GROUP_ID_NOT_FOUND
    found = harness.coordinator.group_extensions("unused")
    assert not isinstance(found, ErrorCode)
    assert found.target_size == 7


def test_configs_stay_when_the_sweep_forgets_the_group_and_go_when_it_is_deleted() -> None:
    harness = CoordinatorHarness()
    harness.configure(target_size=3)
    member = worker(harness, None, 0)
    stable(member)
    member.leave()
    assert harness.group().state is EMPTY

    harness.sweep()
    harness.restart()
    found = harness.coordinator.group_extensions(GROUP)
    assert not isinstance(found, ErrorCode)
    assert found.target_size == 3

    again = worker(harness, None, 0)
    stable(again)
    again.leave()
    assert harness.delete() is ErrorCode.NONE
    harness.restart()
    gone = harness.coordinator.group_extensions(GROUP)
    assert not isinstance(gone, ErrorCode)
    assert gone.target_size == 0
