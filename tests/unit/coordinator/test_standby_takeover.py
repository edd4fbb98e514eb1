"""A standby takes over from a lost member without a rebalance."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    LONG_MS,
    REBALANCE,
    UNKNOWN,
    connection,
    is_standby,
    partitions,
    reads,
    rebalances,
    worker,
)
from tests.unit.coordinator.harness import REBALANCE_MS, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, keep_alive, stable
from tests.unit.coordinator.reference_client import ReferenceClient
from tests.unit.coordinator.standby_group import StandbyGroup, no_rebalance, world


def took_over(world: StandbyGroup, standby: Consumer, *, assignment: int) -> None:
    """Then: the standby has the assignment, the others have noticed nothing, and no other member is asked to rejoin."""
    assert standby.heartbeat() is REBALANCE
    assert not standby.join().is_pending
    assert standby.generation == 1
    assert partitions(standby.sync()) == {assignment}
    assert standby.heartbeat() is ErrorCode.NONE
    assert no_rebalance(world)
    assert world.harness.extensions().assignment_epoch == 1_000_001
    (event,) = world.harness.events_of(EventKind.TOOK_OVER)
    assert (event.member_id, event.previous_epoch, event.epoch) == (standby.id, 1_000_000, 1_000_001)
    assert event.changed_owner == 1


def test_a_standby_takes_over_from_a_follower_that_left(a_world: StandbyGroup) -> None:
    assert a_world.follower.leave() is ErrorCode.NONE

    took_over(a_world, a_world.standby, assignment=1)

    assert a_world.other.heartbeat() is ErrorCode.NONE
    assert a_world.leader.heartbeat() is ErrorCode.NONE


def test_a_standby_takes_over_from_a_member_whose_session_expired(a_world: StandbyGroup) -> None:
    keep_alive(SESSION_MS + 100, a_world.leader, a_world.standby, a_world.other)

    took_over(a_world, a_world.other, assignment=1)


def test_a_standby_that_takes_over_from_the_leader_leads_without_assigning(a_world: StandbyGroup) -> None:
    a_world.leader.leave()

    took_over(a_world, a_world.standby, assignment=0)

    assert a_world.standby.leads
    assert {member.member_id for member in a_world.standby.members} == {a_world.standby.id, a_world.follower.id}
    a_world.harness.topic_grew("t")
    assert no_rebalance(a_world)


def test_a_standby_at_v5_takes_over_as_follower_and_growth_causes_a_rebalance() -> None:
    old = world(version=5)
    old.leader.leave()

    took_over(old, old.standby, assignment=0)

    assert not old.standby.leads
    old.harness.topic_grew("t")
    assert rebalances(old.harness) == old.began + 1


def test_the_second_standby_to_rejoin_gets_its_empty_assignment_again(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    assert a_world.standby.heartbeat() is a_world.other.heartbeat() is REBALANCE
    a_world.standby.join()

    assert not a_world.other.join().is_pending
    assert partitions(a_world.other.sync()) == set()
    assert a_world.other.heartbeat() is ErrorCode.NONE


def test_a_replaced_member_is_unknown_and_returns_as_a_standby(
    a_world: StandbyGroup,
) -> None:
    gone = a_world.follower
    gone.leave()
    a_world.standby.join()

    assert gone.heartbeat() is UNKNOWN
    assert gone.commit(5).codes == [UNKNOWN]
    back = gone.restarted()
    is_standby(back)
    assert no_rebalance(a_world)


def test_a_lost_member_that_returns_first_fills_its_own_vacancy() -> None:
    a_world = world()
    a_world.follower.leave()
    back = a_world.follower.restarted()

    assert not back.join().is_pending
    assert partitions(back.sync()) == {1}
    assert no_rebalance(a_world)


def test_two_standbys_fill_two_vacancies(a_world: StandbyGroup) -> None:
    harness = a_world.harness
    harness.leave((a_world.leader.id, a_world.leader.instance), (a_world.follower.id, a_world.follower.instance))

    assert harness.extensions().vacancies == 2
    assert harness.state() == "Stable"
    assert not a_world.standby.join().is_pending
    assert not a_world.other.join().is_pending
    assert {*partitions(a_world.standby.sync()), *partitions(a_world.other.sync())} == {0, 1}
    assert no_rebalance(a_world)
    assert harness.group().leader_id in (a_world.standby.id, a_world.other.id)


def test_more_vacancies_than_standbys_cause_a_rebalance_with_the_standbys(a_world: StandbyGroup) -> None:
    a_world.other.leave()
    harness = a_world.harness
    harness.leave((a_world.leader.id, a_world.leader.instance), (a_world.follower.id, a_world.follower.instance))

    assert rebalances(harness) == a_world.began + 1
    assert a_world.standby.heartbeat() is REBALANCE
    a_world.standby.join()
    harness.advance(SESSION_MS)
    a_world.standby.take()
    assert a_world.standby.leads


def test_a_standby_that_reads_other_topics_is_not_asked_to_rejoin() -> None:
    a_world = world()
    for standby in (a_world.standby, a_world.other):
        standby.metadata = reads("t", "u")
        standby.join()
    a_world.follower.leave()

    assert rebalances(a_world.harness) == a_world.began + 1


def test_a_vacancy_that_is_not_filled_in_time_causes_a_rebalance(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    for _ in range(SESSION_MS // 100):
        a_world.harness.advance(100)
        for member in (a_world.leader, a_world.standby, a_world.other):
            member.heartbeat()  # they are alive, and too busy to join

    assert rebalances(a_world.harness) == a_world.began + 1


def test_a_vacancy_lasts_for_the_rebalance_timeout_and_not_for_a_session() -> None:
    # given a member with a long session, which has been silent for that long
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    leader, follower = worker(harness, "L", 0, session_ms=LONG_MS), worker(harness, "F", 1, session_ms=LONG_MS)
    stable(leader, follower)
    standby = worker(harness, "S", session_ms=LONG_MS)
    is_standby(standby)
    began = rebalances(harness)
    harness.advance(LONG_MS // 2)
    assert leader.heartbeat() is standby.heartbeat() is ErrorCode.NONE
    harness.advance(LONG_MS // 2)
    assert harness.extensions().vacancies == 1

    # when the standby is asked to rejoin and does not join within its rebalance timeout
    assert standby.heartbeat() is REBALANCE
    harness.advance(REBALANCE_MS - 1)
    assert rebalances(harness) == began
    harness.advance(1)

    # then the group rebalances
    assert rebalances(harness) == began + 1
    assert leader.heartbeat() is REBALANCE


def test_when_the_last_standby_is_gone_there_is_nothing_to_wait_for(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    a_world.standby.leave()
    assert no_rebalance(a_world)

    a_world.other.leave()

    assert rebalances(a_world.harness) == a_world.began + 1


def test_a_takeover_that_cannot_be_stored_leaves_the_vacancy(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    a_world.harness.fail_appends(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert a_world.standby.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    took_over(a_world, a_world.standby, assignment=1)


def test_a_hand_over_that_is_open_makes_it_a_rebalance() -> None:
    """No partition may be orphaned: p was claimed by the lost member, and was to be assigned to another one next."""
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    one = worker(harness, "1", 0, metadata=reads("t", owns=[0, 1], generation=0))
    two, standby = worker(harness, "2"), worker(harness, "3")
    stable(one, two)
    is_standby(standby)
    before = rebalances(harness)

    one.leave()

    assert rebalances(harness) == before + 1


@pytest.mark.parametrize("loss", ["by its session", "by the clock", "by leaving"])
def test_in_the_end_of_a_hand_over_whose_giver_died_everything_has_one_owner(loss: str) -> None:
    # given a cooperative group of one that has everything, and a second member to which it is to give something up
    harness = CoordinatorHarness()
    harness.topics["t"] = 4
    harness.configure(target_size=2)
    harness.configure(standby_takeover_ms=300 if loss == "by the clock" else -1)
    giver, taker, standby = (ReferenceClient(harness, harness.topics, name, 9, cooperative=True) for name in "GTS")
    live_for(1_000, giver)
    assert len(giver.owned) == 4
    for _ in range(3):  # join, sync, and what the giver has to do for that
        taker.act()
        giver.act()
        giver.take_reply()
        taker.take_reply()
    assert (len(giver.owned), len(taker.owned), giver.joined) == (2, 0, False), "the hand-over is not open"
    standby.act()
    live_for(100, standby)
    assert harness.extensions().standbys == [standby.id]

    # when the giver is lost before it has joined again
    if loss == "by leaving":
        harness.leave((giver.id, giver.instance))
    giver.dies()
    live_for(SESSION_MS + 3 * REBALANCE_MS, taker, standby)

    # then the other and the standby have everything, each partition once
    assert taker.is_working and standby.is_working
    assert {member.id for member in harness.group().members} == {taker.id, standby.id}
    assert sorted([*taker.owned, *standby.owned]) == [("t", number) for number in range(4)]


def live_for(ms: int, *clients: ReferenceClient) -> None:
    """Time passes while these do what they do; at no time do two of them own the same."""
    harness = clients[0].harness
    for _ in range(ms // 50):
        for client in clients:
            client.act()
            for one in clients:
                one.take_reply()
        owned = [partition for client in clients for partition in client.owned]
        assert len(owned) == len(set(owned)), "owned twice"
        harness.advance(50)


def test_each_loss_is_taken_over_by_one_of_several_standbys() -> None:
    # given one member and three standbys
    harness = CoordinatorHarness()
    harness.configure(target_size=1)
    active, *standbys = (worker(harness, name, 0) for name in ("1", "2", "3", "4"))
    stable(active)
    is_standby(*standbys)
    began = rebalances(harness)

    # when one after the other leaves that has the assignment
    for losses in range(1, 4):
        active.leave()
        assert [standby.heartbeat() for standby in standbys] == [REBALANCE] * len(standbys)
        active, *standbys = standbys
        for one in (active, *standbys):
            assert not one.join().is_pending

        # then the first that joins has it, and the others have nothing and are not asked to rejoin any more
        assert partitions(active.sync()) == {0}
        assert active.leads
        assert [partitions(standby.sync()) for standby in standbys] == [set()] * len(standbys)
        assert {one.heartbeat() for one in (active, *standbys)} == {ErrorCode.NONE}
        assert harness.extensions().standbys == [standby.id for standby in standbys]
        assert harness.extensions().assignment_epoch == 1_000_000 + losses
    assert rebalances(harness) == began


def test_restarts_of_other_static_members_leave_the_vacancy() -> None:
    a_world = world()
    a_world.follower.leave()

    again = a_world.leader.restarted()
    assert not again.join().is_pending
    a_world.harness.restart()

    stored = {member.group_instance_id for member in a_world.harness.group().stored.members}
    assert stored == {"L", "F"}


# -- the clock of a closed connection ----------------------------------------------------------------------------------


def test_a_closed_connection_starts_the_clock() -> None:
    a_world = world()
    a_world.harness.configure(standby_takeover_ms=500)
    others = (a_world.leader, a_world.standby, a_world.other)

    a_world.harness.disconnect(a_world.follower.client)
    keep_alive(450, *others)
    assert not a_world.harness.extensions().vacancies
    keep_alive(50, *others)

    assert a_world.harness.extensions().vacancies == 1
    took_over(a_world, a_world.standby, assignment=1)
    assert a_world.follower.heartbeat() is UNKNOWN


def test_silence_on_an_open_connection_is_judged_by_the_session() -> None:
    a_world = world()
    a_world.harness.configure(standby_takeover_ms=500)

    keep_alive(SESSION_MS - 100, a_world.leader, a_world.standby, a_world.other)
    assert not a_world.harness.extensions().vacancies

    keep_alive(200, a_world.leader, a_world.standby, a_world.other)
    assert a_world.harness.extensions().vacancies == 1


def test_unless_it_is_set_there_is_no_clock() -> None:
    a_world = world()

    a_world.harness.disconnect(a_world.follower.client)
    keep_alive(SESSION_MS - 100, a_world.leader, a_world.standby, a_world.other)

    assert not a_world.harness.extensions().vacancies


def test_a_member_that_comes_back_over_another_connection_stops_the_clock() -> None:
    a_world = world()
    a_world.harness.configure(standby_takeover_ms=500)

    a_world.harness.disconnect(a_world.follower.client)
    a_world.follower.client = connection()
    keep_alive(SESSION_MS * 2, a_world.leader, a_world.follower, a_world.standby, a_world.other)

    assert no_rebalance(a_world)
    assert not a_world.harness.extensions().vacancies


def test_an_older_connection_that_closes_means_nothing() -> None:
    a_world = world()
    a_world.harness.configure(standby_takeover_ms=500)
    before, a_world.follower.client = a_world.follower.client, connection()
    a_world.follower.heartbeat()

    a_world.harness.disconnect(before)
    keep_alive(2_000, a_world.leader, a_world.standby, a_world.other)

    assert not a_world.harness.extensions().vacancies


def test_without_a_standby_the_session_is_what_counts() -> None:
    a_world = world()
    a_world.harness.configure(standby_takeover_ms=500)
    a_world.standby.leave()
    a_world.other.leave()

    a_world.harness.disconnect(a_world.follower.client)
    keep_alive(SESSION_MS - 100, a_world.leader)

    assert no_rebalance(a_world)


def long_lived_pair(*, takeover_ms: int = 2_000) -> tuple[CoordinatorHarness, Consumer, Consumer]:
    """Given: a leader and a follower whose sessions are far longer than the clock, and no standby yet."""
    harness = CoordinatorHarness()
    leader, follower = worker(harness, "L", 0, session_ms=LONG_MS), worker(harness, "F", 1, session_ms=LONG_MS)
    stable(leader, follower)
    harness.configure(target_size=2)
    harness.configure(standby_takeover_ms=takeover_ms)
    return harness, leader, follower


def test_a_standby_that_joins_after_the_takeover_time_is_asked_at_once() -> None:
    # given a member that is lost for longer than the takeover time, while there was no standby
    harness, leader, follower = long_lived_pair()
    standby = worker(harness, "S", session_ms=LONG_MS)
    harness.disconnect(follower.client)
    harness.advance(2_500)
    began = rebalances(harness)

    # when a standby joins
    is_standby(standby)
    harness.advance(2_000)

    # then it fills the vacancy, long before the session of the lost member expires
    assert standby.heartbeat() is REBALANCE
    assert not standby.join().is_pending
    assert partitions(standby.sync()) == {1}
    assert leader.heartbeat() is ErrorCode.NONE
    assert rebalances(harness) == began


def test_a_member_killed_during_a_rebalance_is_replaced_after_it() -> None:
    """The new generation has an assignment for it, and its SyncGroup would never come."""
    # given a rebalance in which the follower dies before it joins
    harness, leader, follower = long_lived_pair()
    standby = worker(harness, "S", session_ms=LONG_MS)
    is_standby(standby)
    leader.metadata = reads("t", generation=1)
    leader.join()
    harness.disconnect(follower.client)
    harness.advance(REBALANCE_MS)
    leader.take()
    assert leader.sync(follower).code is ErrorCode.NONE
    assert standby.heartbeat() is REBALANCE
    is_standby(standby)
    assert harness.group().members.pending_sync_members == {follower.id}

    # when the clock has run out
    harness.advance(2_000)

    # then the standby takes over
    assert standby.heartbeat() is REBALANCE
    assert not standby.join().is_pending
    assert partitions(standby.sync()) == {1}
    assert harness.state() == "Stable"


def test_a_clock_of_a_millisecond_is_not_looked_at_every_millisecond() -> None:
    harness, leader, follower = long_lived_pair(takeover_ms=1)
    harness.disconnect(follower.client)

    looked = 0
    end = harness.now + 60_000
    while (deadline := harness.coordinator.next_deadline_ms()) is not None and deadline <= end:
        harness.advance(deadline - harness.now)
        looked += 1

    assert looked <= 61
    assert leader.heartbeat() is ErrorCode.NONE


def test_the_takeover_clock_keeps_running_after_requests_on_a_closed_connection() -> None:
    # given a member whose connection closed
    harness, leader, follower = long_lived_pair()
    is_standby(worker(harness, "S", session_ms=LONG_MS))
    harness.disconnect(follower.client)

    # when it comes back over another one, which closes while its heartbeat waits for an append
    harness.pause_appends()
    harness.add_members("somebody")
    again = connection()
    handle = harness.heartbeat_later(follower.id, follower.generation, instance="F", client=again)
    harness.disconnect(again)
    harness.resume_appends()
    assert handle.code is ErrorCode.NONE

    # then it is gone, and not waited for as long as its session lasts
    harness.advance(2_000)
    assert harness.extensions().vacancies == 1
    assert leader.heartbeat() is ErrorCode.NONE


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def test_a_crash_during_a_vacancy_gives_the_lost_member_a_fresh_session(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    a_world.harness.restart()

    assert a_world.standby.heartbeat() is UNKNOWN
    assert a_world.leader.heartbeat() is ErrorCode.NONE
    back = a_world.standby.restarted()
    is_standby(back)
    keep_alive(SESSION_MS + 100, a_world.leader, back)

    assert a_world.harness.extensions().vacancies == 1
    assert back.heartbeat() is REBALANCE
    back.join()
    assert partitions(back.sync()) == {1}


def test_after_a_crash_the_standby_that_filled_the_vacancy_is_asked_again(a_world: StandbyGroup) -> None:
    a_world.follower.leave()
    a_world.standby.join()
    a_world.harness.restart()

    assert a_world.follower.heartbeat() is UNKNOWN
    assert a_world.standby.heartbeat() is REBALANCE
    assert not a_world.standby.join().is_pending
    assert partitions(a_world.standby.sync()) == {1}
    assert a_world.standby.heartbeat() is ErrorCode.NONE
    assert a_world.harness.extensions().assignment_epoch == 1_000_001
    assert no_rebalance(a_world)


@pytest.mark.parametrize("topic", ["t", "another"])
def test_a_lost_member_that_returns_does_not_fill_the_vacancy_of_another(topic: str) -> None:
    """It was stored beside itself, and a broker that was killed then could not load the group (seed 10031)."""
    # given a group that has lost two members, and standbys for both of them
    harness = CoordinatorHarness()
    harness.configure(target_size=3)
    one, two, three = (worker(harness, name, at) for name, at in (("1", 0), ("2", 1), ("3", 2)))
    stable(one, two, three)
    is_standby(worker(harness, "s"), worker(harness, "r"))
    two.leave()
    three.leave()
    assert [vacancy.member.instance_id for vacancy in harness.group().ext.vacancies] == ["2", "3"]

    # when the one that left last returns
    back = three.restarted(metadata=reads(topic))
    back.join()

    # then it fills its own vacancy, or is a standby if it no longer can
    assert partitions(back.sync()) == ({2} if topic == "t" else set())
    assert len(harness.group().ext.vacancies) == (1 if topic == "t" else 2)
    harness.restart()
    assert harness.state() == "Stable"
