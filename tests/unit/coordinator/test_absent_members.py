"""In a group with `target.group.size`, the seats of members that are away shut nobody out who is there."""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import REBALANCE_MS, Bench
from tests.unit.coordinator.extension_scene import (
    LONG_MS,
    REBALANCE,
    UNKNOWN,
    all_rejoin,
    connection,
    reads,
    seated,
    worker,
)
from tests.unit.coordinator.scene import Consumer, stable


def is_served(consumer: Consumer) -> bool:
    """Whether its join has been answered, with a generation that it leads."""
    consumer.take()
    return consumer.joining is None and consumer.leads


@pytest.mark.parametrize("target", [1, 2])
def test_a_dead_standby_does_not_shut_out_the_one_that_comes_for_a_member_that_left(target: int) -> None:
    # given a group of one with a standby whose process is dead
    bench = Bench()
    active = worker(bench, None, 0)
    stable(active)
    bench.configure(target_size=1)
    dead = worker(bench, "dead", session_ms=LONG_MS)
    seated(dead)
    bench.hang_up(dead.client)
    bench.configure(target_size=target)

    # when the member leaves, and another comes
    active.leave()
    newcomer = worker(bench, "N", 0)
    newcomer.join()
    bench.advance(REBALANCE_MS)

    # then that one has everything, and the dead one waits
    assert is_served(newcomer)
    assert [member.group_instance_id for member in newcomer.members] == ["N"]
    assert bench.extensions().waiting == [dead.id]


@pytest.mark.parametrize("dies", [True, False])
def test_a_standby_that_does_not_come_for_its_share_makes_room_for_one_that_has_come(dies: bool) -> None:
    # given a group with room for one more, for which a standby is about to be taken in
    bench = Bench()
    leader, follower = worker(bench, "L", 0, session_ms=LONG_MS), worker(bench, None, 1)
    stable(leader, follower)
    bench.configure(target_size=2)
    slow, newcomer = worker(bench, "slow", session_ms=LONG_MS), worker(bench, "N", 2)
    seated(slow)
    bench.configure(target_size=3)
    assert bench.state() == "PreparingRebalance"

    # when it is not heard of before the join phase ends, and another member comes
    if dies:
        bench.hang_up(slow.client)
    newcomer.join()
    leader.join()
    follower.join()
    bench.advance(0 if dies else REBALANCE_MS)

    # then that one has the share
    leader.take()
    assert {member.group_instance_id for member in leader.members} == {"L", None, "N"}
    assert bench.extensions().waiting == [slow.id]


def a_rebalance_without_anybody(bench: Bench, count: int) -> list[Consumer]:
    """Given: a group whose target is so many static members, all of them dead, and a rebalance under way."""
    dead = [worker(bench, f"dead-{number}", number, session_ms=LONG_MS) for number in range(count)]
    stable(*dead)
    bench.configure(target_size=count)
    standby = worker(bench)
    seated(standby)
    for one in dead:
        bench.hang_up(one.client)
    bench.configure(target_size=count + 1)
    standby.leave()
    bench.configure(target_size=count)
    assert bench.state() == "PreparingRebalance"
    assert len(bench.group().roster) == count
    return dead


def test_newcomers_are_served_although_all_who_have_a_share_are_away() -> None:
    """Each of them has a seat that is kept; in a group without a target the newcomers would work beside them."""
    # given
    bench = Bench()
    dead = a_rebalance_without_anybody(bench, 2)

    # when others come
    newcomers = [worker(bench, name, session_ms=LONG_MS) for name in "ABC"]
    for newcomer in newcomers:
        newcomer.join()
    bench.advance(REBALANCE_MS)

    # then two of them work, the third is a standby, and the dead are out
    assert is_served(newcomers[0])
    assert {member.group_instance_id for member in newcomers[0].members} == {"A", "B"}
    newcomers[2].take()
    assert bench.extensions().waiting == [newcomers[2].id]
    assert [one.heartbeat() for one in dead] == [UNKNOWN] * 2
    assert [event.cause for event in bench.told(EventKind.DROPPED)] == [
        "away, and others have come: target.group.size is 2"
    ] * 2


def test_only_as_many_of_the_absent_are_given_up_as_others_have_come() -> None:
    bench = Bench()
    dead = a_rebalance_without_anybody(bench, 3)

    newcomer = worker(bench, "N", session_ms=LONG_MS)
    newcomer.join()
    bench.advance(REBALANCE_MS)

    assert is_served(newcomer)
    assert {member.group_instance_id for member in newcomer.members} == {"dead-0", "dead-1", "N"}
    assert [event.instance_id for event in bench.told(EventKind.DROPPED)] == [dead[2].instance]


def test_members_that_are_away_keep_their_seats_if_somebody_who_has_a_share_is_there() -> None:
    """The control: then there is a generation, and standbys for those who do not return."""
    bench = Bench()
    bench.configure(target_size=2)
    one, two = worker(bench, "1", 0), worker(bench, "2", 1, session_ms=LONG_MS)
    stable(one, two)
    one.metadata = reads("t", generation=1)
    one.join()
    bench.hang_up(two.client)
    newcomer = worker(bench, "N")
    newcomer.join()
    bench.advance(REBALANCE_MS)

    one.take()
    assert {member.group_instance_id for member in one.members} == {"1", "2"}
    newcomer.take()
    assert bench.extensions().waiting == [newcomer.id]


def one_that_does_not_know_that_it_leads(bench: Bench) -> Consumer:
    """Given: a group whose target is one, which is a static member that has restarted."""
    bench.topics["t"] = 1
    first = worker(bench, "L", 0, session_ms=LONG_MS, version=5)
    stable(first)
    leader = first.restarted(client=connection())
    leader.join()
    leader.sync()
    bench.configure(target_size=1)
    return leader


def test_a_standby_hears_at_once_of_a_rebalance_for_which_nobody_else_is_there() -> None:
    """A topic grew while the only member, which did not know that it led, was dead: nobody would have come."""
    # given a static member that does not know that it leads, and a standby
    bench = Bench()
    leader = one_that_does_not_know_that_it_leads(bench)
    bench.configure(standby_takeover_ms=2_000)
    standby = worker(bench, "S", 0, session_ms=LONG_MS)
    seated(standby)

    # when it dies, and the topic grows
    bench.hang_up(leader.client)
    bench.topic_grew("t", 2)

    # then the standby leads the next generation
    assert standby.heartbeat() is REBALANCE
    standby.join()
    bench.advance(REBALANCE_MS)
    assert is_served(standby)
    assert [member.group_instance_id for member in standby.members] == ["S"]


def test_a_standby_is_asked_when_nobody_came_to_the_join_phase() -> None:
    """As long as the connection of a paused process is open, nobody knows that it is not there."""
    bench = Bench()
    one_that_does_not_know_that_it_leads(bench)
    standby = worker(bench, "S", 0, session_ms=LONG_MS)
    seated(standby)
    bench.topic_grew("t", 2)
    assert standby.heartbeat() is ErrorCode.NONE  # the others come first

    bench.advance(REBALANCE_MS)

    assert standby.heartbeat() is REBALANCE
    standby.join()
    bench.advance(REBALANCE_MS)
    assert is_served(standby)


def test_a_smaller_target_sends_those_away_first_who_are_not_there() -> None:
    """The youngest went, the oldest was dead, and nobody was left to form the generation."""
    bench = Bench()
    one, two = worker(bench, "1", 0, session_ms=LONG_MS), worker(bench, "2", 1)
    stable(one, two)
    bench.hang_up(one.client)

    bench.configure(target_size=1)

    assert one.heartbeat() is UNKNOWN
    all_rejoin(two)
