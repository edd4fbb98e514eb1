"""In a group with `target.group.size`, absent members do not shut out members that are present."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    LONG_MS,
    REBALANCE,
    UNKNOWN,
    all_rejoin,
    connection,
    is_standby,
    reads,
    worker,
)
from tests.unit.coordinator.harness import REBALANCE_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, stable


def is_served(consumer: Consumer) -> bool:
    """Whether its join has been answered, with a generation that it leads."""
    consumer.take()
    return consumer.joining is None and consumer.leads


@pytest.mark.parametrize("target", [1, 2])
def test_a_dead_standby_does_not_shut_out_the_one_that_comes_for_a_member_that_left(target: int) -> None:
    # given a group of one with a standby whose process is dead
    harness = CoordinatorHarness()
    active = worker(harness, None, 0)
    stable(active)
    harness.configure(target_size=1)
    dead = worker(harness, "dead", session_ms=LONG_MS)
    is_standby(dead)
    harness.disconnect(dead.client)
    harness.configure(target_size=target)

    # when the member leaves, and another comes
    active.leave()
    newcomer = worker(harness, "N", 0)
    newcomer.join()
    harness.advance(REBALANCE_MS)

    # then that one has everything, and the dead one waits
    assert is_served(newcomer)
    assert [member.group_instance_id for member in newcomer.members] == ["N"]
    assert harness.extensions().standbys == [dead.id]


@pytest.mark.parametrize("dies", [True, False])
def test_a_standby_that_does_not_rejoin_makes_room_for_one_that_has(dies: bool) -> None:
    # given a group with room for one more, for which a standby is about to be taken in
    harness = CoordinatorHarness()
    leader, follower = worker(harness, "L", 0, session_ms=LONG_MS), worker(harness, None, 1)
    stable(leader, follower)
    harness.configure(target_size=2)
    slow, newcomer = worker(harness, "slow", session_ms=LONG_MS), worker(harness, "N", 2)
    is_standby(slow)
    harness.configure(target_size=3)
    assert harness.state() == "PreparingRebalance"

    # when it is not heard of before the join phase ends, and another member comes
    if dies:
        harness.disconnect(slow.client)
    newcomer.join()
    leader.join()
    follower.join()
    harness.advance(0 if dies else REBALANCE_MS)

    # then that one has the assignment
    leader.take()
    assert {member.group_instance_id for member in leader.members} == {"L", None, "N"}
    assert harness.extensions().standbys == [slow.id]


def a_rebalance_without_anybody(harness: CoordinatorHarness, count: int) -> list[Consumer]:
    """Given: a group whose target is so many static members, all of them dead, and a rebalance under way."""
    dead = [worker(harness, f"dead-{number}", number, session_ms=LONG_MS) for number in range(count)]
    stable(*dead)
    harness.configure(target_size=count)
    standby = worker(harness)
    is_standby(standby)
    for one in dead:
        harness.disconnect(one.client)
    harness.configure(target_size=count + 1)
    standby.leave()
    harness.configure(target_size=count)
    assert harness.state() == "PreparingRebalance"
    assert len(harness.group().members) == count
    return dead


def test_newcomers_join_although_all_active_members_are_absent() -> None:
    """Each of them is kept as a member; in a group without a target the newcomers would work beside them."""
    # given
    harness = CoordinatorHarness()
    dead = a_rebalance_without_anybody(harness, 2)

    # when others come
    newcomers = [worker(harness, name, session_ms=LONG_MS) for name in "ABC"]
    for newcomer in newcomers:
        newcomer.join()
    harness.advance(REBALANCE_MS)

    # then two of them work, the third is a standby, and the dead are out
    assert is_served(newcomers[0])
    assert {member.group_instance_id for member in newcomers[0].members} == {"A", "B"}
    newcomers[2].take()
    assert harness.extensions().standbys == [newcomers[2].id]
    assert [one.heartbeat() for one in dead] == [UNKNOWN] * 2
    assert [event.cause for event in harness.events_of(EventKind.DROPPED)] == [
        Cause(CauseCode.ABSENT_OVER_TARGET_SIZE, count=2)
    ] * 2


def test_only_as_many_of_the_absent_are_given_up_as_others_have_come() -> None:
    harness = CoordinatorHarness()
    dead = a_rebalance_without_anybody(harness, 3)

    newcomer = worker(harness, "N", session_ms=LONG_MS)
    newcomer.join()
    harness.advance(REBALANCE_MS)

    assert is_served(newcomer)
    assert {member.group_instance_id for member in newcomer.members} == {"dead-0", "dead-1", "N"}
    assert [event.instance_id for event in harness.events_of(EventKind.DROPPED)] == [dead[2].instance]


def test_absent_members_keep_their_assignments_if_an_active_member_is_present() -> None:
    """The control: then there is a generation, and standbys for those who do not return."""
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    one, two = worker(harness, "1", 0), worker(harness, "2", 1, session_ms=LONG_MS)
    stable(one, two)
    one.metadata = reads("t", generation=1)
    one.join()
    harness.disconnect(two.client)
    newcomer = worker(harness, "N")
    newcomer.join()
    harness.advance(REBALANCE_MS)

    one.take()
    assert {member.group_instance_id for member in one.members} == {"1", "2"}
    newcomer.take()
    assert harness.extensions().standbys == [newcomer.id]


def leader_not_notified(harness: CoordinatorHarness) -> Consumer:
    """Given: a group whose target is one, which is a static member that has restarted."""
    harness.topics["t"] = 1
    first = worker(harness, "L", 0, session_ms=LONG_MS, version=5)
    stable(first)
    leader = first.restarted(client=connection())
    leader.join()
    leader.sync()
    harness.configure(target_size=1)
    return leader


def test_a_standby_learns_at_once_of_a_rebalance_in_which_all_others_are_absent() -> None:
    """A topic grew while the only member, which did not know that it led, was dead: nobody would have come."""
    # given a static member that does not know that it leads, and a standby
    harness = CoordinatorHarness()
    leader = leader_not_notified(harness)
    harness.configure(standby_takeover_ms=2_000)
    standby = worker(harness, "S", 0, session_ms=LONG_MS)
    is_standby(standby)

    # when it dies, and the topic grows
    harness.disconnect(leader.client)
    harness.topic_grew("t", 2)

    # then the standby leads the next generation
    assert standby.heartbeat() is REBALANCE
    standby.join()
    harness.advance(REBALANCE_MS)
    assert is_served(standby)
    assert [member.group_instance_id for member in standby.members] == ["S"]


def test_a_standby_is_asked_to_rejoin_when_no_member_joined_in_the_join_phase() -> None:
    """As long as the connection of a paused process is open, nobody knows that it is not there."""
    harness = CoordinatorHarness()
    leader_not_notified(harness)
    standby = worker(harness, "S", 0, session_ms=LONG_MS)
    is_standby(standby)
    harness.topic_grew("t", 2)
    assert standby.heartbeat() is ErrorCode.NONE  # the others come first

    harness.advance(REBALANCE_MS)

    assert standby.heartbeat() is REBALANCE
    standby.join()
    harness.advance(REBALANCE_MS)
    assert is_served(standby)


def test_a_smaller_target_removes_disconnected_members_first() -> None:
    """The youngest went, the oldest was dead, and nobody was left to form the generation."""
    harness = CoordinatorHarness()
    one, two = worker(harness, "1", 0, session_ms=LONG_MS), worker(harness, "2", 1)
    stable(one, two)
    harness.disconnect(one.client)

    harness.configure(target_size=1)

    assert one.heartbeat() is UNKNOWN
    all_rejoin(two)
