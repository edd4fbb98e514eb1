"""Hot standbys: members past `target.group.size` wait, and take the place of one who goes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.states import EMPTY, PREPARING, STABLE
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import GROUP, REBALANCE_MS, SESSION_MS, Bench
from tests.unit.coordinator.extension_scene import (
    LONG_MS,
    REBALANCE,
    UNKNOWN,
    all_rejoin,
    connection,
    partitions,
    reads,
    rebalances,
    seated,
    worker,
)
from tests.unit.coordinator.model_client import ModelClient
from tests.unit.coordinator.scene import Consumer, keep_alive, stable


@dataclass
class World:
    """Two members with a share, the first leading, and two standbys."""

    bench: Bench
    leader: Consumer
    follower: Consumer
    standby: Consumer
    other: Consumer
    began: int


def world(*, static: bool = True, version: int = 9) -> World:
    bench = Bench()
    assert bench.configure(target_size=2).reply is ErrorCode.NONE
    names = ["L", "F", "S", "O"] if static else [None] * 4
    leader, follower, standby, other = (
        worker(bench, name, number, version=version) for number, name in enumerate(names)
    )
    stable(leader, follower)
    assert leader.leads
    seated(standby, other)
    return World(bench, leader, follower, standby, other, rebalances(bench))


@pytest.fixture(params=[True, False], ids=["static", "dynamic"])
def a_world(request: pytest.FixtureRequest) -> World:
    return world(static=request.param)


def no_rebalance(world: World) -> bool:
    return rebalances(world.bench) == world.began and world.bench.group().state is STABLE


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_members_past_the_target_wait_and_nobody_notices(a_world: World) -> None:
    assert no_rebalance(a_world)
    assert a_world.bench.extensions().waiting == [a_world.standby.id, a_world.other.id]
    keep_alive(SESSION_MS * 3, a_world.leader, a_world.follower, a_world.standby, a_world.other)
    assert no_rebalance(a_world)
    assert [event.cause for event in a_world.bench.told(EventKind.SEATED)] == [
        "a standby: there are enough members without it"
    ] * 2


def test_without_a_target_they_are_members_like_any_other() -> None:
    """The control."""
    bench = Bench()
    one = worker(bench, "1", 0)
    stable(one)
    before = rebalances(bench)

    assert worker(bench, "2", 1).join().parked

    assert rebalances(bench) == before + 1


def test_a_standby_joins_quietly_whatever_its_bytes(a_world: World) -> None:
    a_world.standby.metadata = reads("t", owns=[5], generation=1)

    assert not a_world.standby.join().parked
    assert partitions(a_world.standby.sync()) == set()

    assert no_rebalance(a_world)


def test_a_standby_is_not_in_the_leaders_list_and_is_not_waited_for(a_world: World) -> None:
    a_world.follower.leave()
    # both standbys are called; neither comes, and the place is not taken
    keep_alive(SESSION_MS + 100, a_world.leader)

    assert a_world.bench.group().state is PREPARING
    a_world.leader.join()
    a_world.leader.take()
    assert a_world.leader.leads


def test_in_an_old_generation_a_standby_is_told_to_join_the_new_one(a_world: World) -> None:
    bench, standby = a_world.bench, a_world.standby
    a_world.leader.metadata = reads("t", "u")
    a_world.leader.join()
    a_world.follower.join()
    a_world.leader.take()
    a_world.follower.take()
    assert a_world.leader.generation == 2
    a_world.leader.sync(a_world.follower)

    assert standby.heartbeat() is REBALANCE
    assert not standby.join().parked
    assert standby.generation == 2
    assert standby.heartbeat() is ErrorCode.NONE
    assert bench.group().state is STABLE


def test_when_an_empty_group_forms_the_surplus_becomes_standbys() -> None:
    bench = Bench()
    bench.configure(target_size=2)
    members = [worker(bench, str(number), number) for number in range(4)]
    for member in members:
        assert member.join().parked
    bench.advance(1_000)

    for member in members:
        member.take()
        assert member.generation == 1
    leader = next(member for member in members if member.leads)
    assert len(leader.members) == 2
    assert len(bench.extensions().waiting) == 2
    assert partitions(members[3].sync()) == set()


def test_a_group_of_another_type_has_no_standbys() -> None:
    bench = Bench()
    bench.configure(target_size=1)
    bench.join(protocol_type="connect", instance="a")
    bench.advance(1_000)

    assert bench.join(protocol_type="connect", instance="b").parked


def test_the_size_limit_of_the_broker_counts_standbys() -> None:
    bench = Bench(max_size=2)
    bench.configure(target_size=1)
    one, two, three = (worker(bench, str(number), number) for number in range(3))
    stable(one)
    seated(two)

    assert three.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED


# -- taking over -------------------------------------------------------------------------------------------------------


def took_over(world: World, heir: Consumer, *, share: int) -> None:
    """Then: the heir has the share, the others have noticed nothing, and nobody else is called."""
    assert heir.heartbeat() is REBALANCE
    assert not heir.join().parked
    assert heir.generation == 1
    assert partitions(heir.sync()) == {share}
    assert heir.heartbeat() is ErrorCode.NONE
    assert no_rebalance(world)
    assert world.bench.extensions().assignment_epoch == 1_000_001
    (event,) = world.bench.told(EventKind.TOOK_OVER)
    assert (event.member_id, event.previous_epoch, event.epoch) == (heir.id, 1_000_000, 1_000_001)
    assert event.changed_owner == 1


def test_a_standby_takes_the_place_of_a_follower_that_left(a_world: World) -> None:
    assert a_world.follower.leave() is ErrorCode.NONE

    took_over(a_world, a_world.standby, share=1)

    assert a_world.other.heartbeat() is ErrorCode.NONE
    assert a_world.leader.heartbeat() is ErrorCode.NONE


def test_a_standby_takes_the_place_of_a_member_whose_session_ended(a_world: World) -> None:
    keep_alive(SESSION_MS + 100, a_world.leader, a_world.standby, a_world.other)

    took_over(a_world, a_world.other, share=1)


def test_the_heir_of_a_leader_leads_and_assigns_nothing(a_world: World) -> None:
    a_world.leader.leave()

    took_over(a_world, a_world.standby, share=0)

    assert a_world.standby.leads
    assert {member.member_id for member in a_world.standby.members} == {a_world.standby.id, a_world.follower.id}
    a_world.bench.topic_grew("t")
    assert no_rebalance(a_world)


def test_an_heir_of_a_leader_that_is_too_old_follows_and_the_coordinator_watches_the_topics() -> None:
    old = world(version=5)
    old.leader.leave()

    took_over(old, old.standby, share=0)

    assert not old.standby.leads
    old.bench.topic_grew("t")
    assert rebalances(old.bench) == old.began + 1


def test_the_second_standby_that_comes_gets_its_empty_share_again(a_world: World) -> None:
    a_world.follower.leave()
    assert a_world.standby.heartbeat() is a_world.other.heartbeat() is REBALANCE
    a_world.standby.join()

    assert not a_world.other.join().parked
    assert partitions(a_world.other.sync()) == set()
    assert a_world.other.heartbeat() is ErrorCode.NONE


def test_the_one_that_went_is_unknown_its_commits_are_refused_and_it_returns_as_a_standby(a_world: World) -> None:
    gone = a_world.follower
    gone.leave()
    a_world.standby.join()

    assert gone.heartbeat() is UNKNOWN
    assert gone.commit(5).codes == [UNKNOWN]
    back = gone.restarted()
    seated(back)
    assert no_rebalance(a_world)


def test_one_that_returns_before_anybody_took_its_place_takes_it_itself() -> None:
    a_world = world()
    a_world.follower.leave()
    back = a_world.follower.restarted()

    assert not back.join().parked
    assert partitions(back.sync()) == {1}
    assert no_rebalance(a_world)


def test_two_places_for_two_standbys(a_world: World) -> None:
    bench = a_world.bench
    bench.leave((a_world.leader.id, a_world.leader.instance), (a_world.follower.id, a_world.follower.instance))

    assert bench.extensions().open_places == 2
    assert bench.state() == "Stable"
    assert not a_world.standby.join().parked
    assert not a_world.other.join().parked
    assert {*partitions(a_world.standby.sync()), *partitions(a_world.other.sync())} == {0, 1}
    assert no_rebalance(a_world)
    assert bench.group().leader_id in (a_world.standby.id, a_world.other.id)


def test_more_places_than_standbys_are_a_rebalance_that_takes_the_standbys_in(a_world: World) -> None:
    a_world.other.leave()
    bench = a_world.bench
    bench.leave((a_world.leader.id, a_world.leader.instance), (a_world.follower.id, a_world.follower.instance))

    assert rebalances(bench) == a_world.began + 1
    assert a_world.standby.heartbeat() is REBALANCE
    a_world.standby.join()
    bench.advance(SESSION_MS)
    a_world.standby.take()
    assert a_world.standby.leads


def test_a_standby_that_reads_other_topics_is_not_called() -> None:
    a_world = world()
    for standby in (a_world.standby, a_world.other):
        standby.metadata = reads("t", "u")
        standby.join()
    a_world.follower.leave()

    assert rebalances(a_world.bench) == a_world.began + 1


def test_a_place_that_nobody_takes_in_time_is_a_rebalance(a_world: World) -> None:
    a_world.follower.leave()
    for _ in range(SESSION_MS // 100):
        a_world.bench.advance(100)
        for member in (a_world.leader, a_world.standby, a_world.other):
            member.heartbeat()  # they are alive, and too busy to join

    assert rebalances(a_world.bench) == a_world.began + 1


def test_a_place_whose_owners_session_is_over_is_not_open_for_another_one() -> None:
    # given a member with a long session, which has been silent for that long
    bench = Bench()
    bench.configure(target_size=2)
    leader, follower = worker(bench, "L", 0, session_ms=LONG_MS), worker(bench, "F", 1, session_ms=LONG_MS)
    stable(leader, follower)
    standby = worker(bench, "S", session_ms=LONG_MS)
    seated(standby)
    began = rebalances(bench)
    bench.advance(LONG_MS // 2)
    assert leader.heartbeat() is standby.heartbeat() is ErrorCode.NONE
    bench.advance(LONG_MS // 2)
    assert bench.extensions().open_places == 1

    # when the standby hears of it and does not join for as long as it may take in a rebalance
    assert standby.heartbeat() is REBALANCE
    bench.advance(REBALANCE_MS - 1)
    assert rebalances(bench) == began
    bench.advance(1)

    # then all share what is left
    assert rebalances(bench) == began + 1
    assert leader.heartbeat() is REBALANCE


def test_when_the_last_standby_is_gone_there_is_nothing_to_wait_for(a_world: World) -> None:
    a_world.follower.leave()
    a_world.standby.leave()
    assert no_rebalance(a_world)

    a_world.other.leave()

    assert rebalances(a_world.bench) == a_world.began + 1


def test_a_place_that_cannot_be_stored_stays_open(a_world: World) -> None:
    a_world.follower.leave()
    a_world.bench.fail_appends(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert a_world.standby.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    took_over(a_world, a_world.standby, share=1)


def test_a_hand_over_that_is_open_makes_it_a_rebalance() -> None:
    """No partition may be orphaned: p was claimed by the one who dies, and was to be somebody else's next."""
    bench = Bench()
    bench.configure(target_size=2)
    one = worker(bench, "1", 0, metadata=reads("t", owns=[0, 1], generation=0))
    two, standby = worker(bench, "2"), worker(bench, "3")
    stable(one, two)
    seated(standby)
    before = rebalances(bench)

    one.leave()

    assert rebalances(bench) == before + 1


@pytest.mark.parametrize("goes", ["by its session", "by the clock", "by leaving"])
def test_in_the_end_of_a_hand_over_whose_giver_died_everything_has_one_owner(goes: str) -> None:
    # given a cooperative group of one that has everything, and a second member to which it is to give something up
    bench = Bench()
    bench.topics["t"] = 4
    bench.configure(target_size=2)
    bench.configure(standby_takeover_ms=300 if goes == "by the clock" else -1)
    giver, taker, standby = (ModelClient(bench, bench.topics, name, 9, cooperative=True) for name in "GTS")
    live_for(1_000, giver)
    assert len(giver.owned) == 4
    for _ in range(3):  # join, sync, and what the giver has to do for that
        taker.act()
        giver.act()
        giver.hear()
        taker.hear()
    assert (len(giver.owned), len(taker.owned), giver.joined) == (2, 0, False), "the hand-over is not open"
    standby.act()
    live_for(100, standby)
    assert bench.extensions().waiting == [standby.id]

    # when the giver goes before it has joined again
    if goes == "by leaving":
        bench.leave((giver.id, giver.instance))
    giver.dies()
    live_for(SESSION_MS + 3 * REBALANCE_MS, taker, standby)

    # then the other and the standby have everything, each partition once
    assert taker.is_working and standby.is_working
    assert {member.id for member in bench.group().roster} == {taker.id, standby.id}
    assert sorted([*taker.owned, *standby.owned]) == [("t", number) for number in range(4)]


def live_for(ms: int, *clients: ModelClient) -> None:
    """Time passes while these do what they do; at no time do two of them own the same."""
    bench = clients[0].bench
    for _ in range(ms // 50):
        for client in clients:
            client.act()
            for one in clients:
                one.hear()
        owned = [partition for client in clients for partition in client.owned]
        assert len(owned) == len(set(owned)), "owned twice"
        bench.advance(50)


def test_of_more_standbys_than_members_each_loss_is_taken_by_one_and_the_others_wait_on() -> None:
    # given one member and three standbys
    bench = Bench()
    bench.configure(target_size=1)
    active, *standbys = (worker(bench, name, 0) for name in ("1", "2", "3", "4"))
    stable(active)
    seated(*standbys)
    began = rebalances(bench)

    # when one after the other goes that has the share
    for losses in range(1, 4):
        active.leave()
        assert [standby.heartbeat() for standby in standbys] == [REBALANCE] * len(standbys)
        active, *standbys = standbys
        for one in (active, *standbys):
            assert not one.join().parked

        # then the first that joins has it, and the others have nothing and are not called any more
        assert partitions(active.sync()) == {0}
        assert active.leads
        assert [partitions(standby.sync()) for standby in standbys] == [set()] * len(standbys)
        assert {one.heartbeat() for one in (active, *standbys)} == {ErrorCode.NONE}
        assert bench.extensions().waiting == [standby.id for standby in standbys]
        assert bench.extensions().assignment_epoch == 1_000_000 + losses
    assert rebalances(bench) == began


def test_static_members_that_restart_beside_an_open_place_do_not_close_it() -> None:
    a_world = world()
    a_world.follower.leave()

    again = a_world.leader.restarted()
    assert not again.join().parked
    a_world.bench.restart()

    stored = {member.group_instance_id for member in a_world.bench.group().stored.members}
    assert stored == {"L", "F"}


# -- the clock of a closed connection ----------------------------------------------------------------------------------


def test_a_closed_connection_starts_the_clock() -> None:
    a_world = world()
    a_world.bench.configure(standby_takeover_ms=500)
    everybody_else = (a_world.leader, a_world.standby, a_world.other)

    a_world.bench.hang_up(a_world.follower.client)
    keep_alive(450, *everybody_else)
    assert not a_world.bench.extensions().open_places
    keep_alive(50, *everybody_else)

    assert a_world.bench.extensions().open_places == 1
    took_over(a_world, a_world.standby, share=1)
    assert a_world.follower.heartbeat() is UNKNOWN


def test_silence_on_an_open_connection_is_judged_by_the_session() -> None:
    a_world = world()
    a_world.bench.configure(standby_takeover_ms=500)

    keep_alive(SESSION_MS - 100, a_world.leader, a_world.standby, a_world.other)
    assert not a_world.bench.extensions().open_places

    keep_alive(200, a_world.leader, a_world.standby, a_world.other)
    assert a_world.bench.extensions().open_places == 1


def test_unless_it_is_set_there_is_no_clock() -> None:
    a_world = world()

    a_world.bench.hang_up(a_world.follower.client)
    keep_alive(SESSION_MS - 100, a_world.leader, a_world.standby, a_world.other)

    assert not a_world.bench.extensions().open_places


def test_a_member_that_comes_back_over_another_connection_stops_the_clock() -> None:
    a_world = world()
    a_world.bench.configure(standby_takeover_ms=500)

    a_world.bench.hang_up(a_world.follower.client)
    a_world.follower.client = connection()
    keep_alive(SESSION_MS * 2, a_world.leader, a_world.follower, a_world.standby, a_world.other)

    assert no_rebalance(a_world)
    assert not a_world.bench.extensions().open_places


def test_an_older_connection_that_closes_means_nothing() -> None:
    a_world = world()
    a_world.bench.configure(standby_takeover_ms=500)
    before, a_world.follower.client = a_world.follower.client, connection()
    a_world.follower.heartbeat()

    a_world.bench.hang_up(before)
    keep_alive(2_000, a_world.leader, a_world.standby, a_world.other)

    assert not a_world.bench.extensions().open_places


def test_without_a_standby_the_session_is_what_counts() -> None:
    a_world = world()
    a_world.bench.configure(standby_takeover_ms=500)
    a_world.standby.leave()
    a_world.other.leave()

    a_world.bench.hang_up(a_world.follower.client)
    keep_alive(SESSION_MS - 100, a_world.leader)

    assert no_rebalance(a_world)


def long_lived_pair(*, takeover_ms: int = 2_000) -> tuple[Bench, Consumer, Consumer]:
    """Given: a leader and a follower whose sessions are far longer than the clock, and no standby yet."""
    bench = Bench()
    leader, follower = worker(bench, "L", 0, session_ms=LONG_MS), worker(bench, "F", 1, session_ms=LONG_MS)
    stable(leader, follower)
    bench.configure(target_size=2)
    bench.configure(standby_takeover_ms=takeover_ms)
    return bench, leader, follower


def test_a_standby_that_sits_down_after_the_clock_ran_out_is_called_with_its_next_round() -> None:
    # given a member that is gone for longer than the clock, while there was no standby
    bench, leader, follower = long_lived_pair()
    standby = worker(bench, "S", session_ms=LONG_MS)
    bench.hang_up(follower.client)
    bench.advance(2_500)
    began = rebalances(bench)

    # when one comes
    seated(standby)
    bench.advance(2_000)

    # then it has the place, long before the session of the one that went is over
    assert standby.heartbeat() is REBALANCE
    assert not standby.join().parked
    assert partitions(standby.sync()) == {1}
    assert leader.heartbeat() is ErrorCode.NONE
    assert rebalances(bench) == began


def test_a_member_killed_while_a_rebalance_was_under_way_is_replaced_when_that_is_over() -> None:
    """Its place in the new generation was kept for it, and its SyncGroup would never come."""
    # given a rebalance in which the follower dies before it joins
    bench, leader, follower = long_lived_pair()
    standby = worker(bench, "S", session_ms=LONG_MS)
    seated(standby)
    leader.metadata = reads("t", generation=1)
    leader.join()
    bench.hang_up(follower.client)
    bench.advance(REBALANCE_MS)
    leader.take()
    assert leader.sync(follower).code is ErrorCode.NONE
    assert standby.heartbeat() is REBALANCE
    seated(standby)
    assert bench.group().roster.awaiting_sync == {follower.id}

    # when the clock has run out
    bench.advance(2_000)

    # then the standby has its place
    assert standby.heartbeat() is REBALANCE
    assert not standby.join().parked
    assert partitions(standby.sync()) == {1}
    assert bench.state() == "Stable"


def test_a_clock_of_a_millisecond_is_not_looked_at_every_millisecond() -> None:
    bench, leader, follower = long_lived_pair(takeover_ms=1)
    bench.hang_up(follower.client)

    looked = 0
    end = bench.now + 60_000
    while (deadline := bench.coordinator.next_deadline_ms()) is not None and deadline <= end:
        bench.advance(deadline - bench.now)
        looked += 1

    assert looked <= 61
    assert leader.heartbeat() is ErrorCode.NONE


def test_a_clock_runs_on_if_all_that_is_heard_came_over_a_connection_that_is_closed_as_well() -> None:
    # given a member whose connection closed
    bench, leader, follower = long_lived_pair()
    seated(worker(bench, "S", session_ms=LONG_MS))
    bench.hang_up(follower.client)

    # when it comes back over another one, which closes while its heartbeat waits for an append
    bench.hold()
    bench.add_members("somebody")
    again = connection()
    handle = bench.heartbeat_later(follower.id, follower.generation, instance="F", client=again)
    bench.hang_up(again)
    bench.release()
    assert handle.code is ErrorCode.NONE

    # then it is gone, and not waited for as long as its session lasts
    bench.advance(2_000)
    assert bench.extensions().open_places == 1
    assert leader.heartbeat() is ErrorCode.NONE


# -- configs -----------------------------------------------------------------------------------------------------------


def test_raising_the_target_is_one_rebalance(a_world: World) -> None:
    a_world.bench.configure(target_size=4)

    assert rebalances(a_world.bench) == a_world.began + 1
    all_rejoin(a_world.leader, a_world.follower, a_world.standby, a_world.other)
    assert rebalances(a_world.bench) == a_world.began + 1
    assert not a_world.bench.extensions().waiting


def test_lowering_the_target_sends_the_youngest_away_who_come_back_as_standbys(a_world: World) -> None:
    a_world.bench.configure(target_size=1)

    assert rebalances(a_world.bench) == a_world.began + 1
    assert a_world.follower.heartbeat() is UNKNOWN
    all_rejoin(a_world.leader)
    back = a_world.follower.restarted()
    seated(back)
    assert rebalances(a_world.bench) == a_world.began + 1
    assert len(a_world.bench.extensions().waiting) == 3


def test_without_a_target_the_standbys_are_taken_in(a_world: World) -> None:
    a_world.bench.configure(target_size=0)

    all_rejoin(a_world.leader, a_world.follower, a_world.standby, a_world.other)


def test_configs_of_a_group_that_nobody_uses_make_no_group(a_world: World) -> None:
    bench = a_world.bench
    bench.configure(target_size=7, group="unused")

    bench.restart()

    assert bench.describe("unused", version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP in {group.group_id for group in bench.coordinator.list_groups([], [])[1]}
    assert "unused" not in {group.group_id for group in bench.coordinator.list_groups([], [])[1]}
    assert bench.delete("unused") is ErrorCode.GROUP_ID_NOT_FOUND
    found = bench.coordinator.group_extensions("unused")
    assert not isinstance(found, ErrorCode)
    assert found.target_size == 7


def test_configs_stay_when_the_sweep_forgets_the_group_and_go_when_it_is_deleted() -> None:
    bench = Bench()
    bench.configure(target_size=3)
    member = worker(bench, None, 0)
    stable(member)
    member.leave()
    assert bench.group().state is EMPTY

    bench.sweep()
    bench.restart()
    found = bench.coordinator.group_extensions(GROUP)
    assert not isinstance(found, ErrorCode)
    assert found.target_size == 3

    again = worker(bench, None, 0)
    stable(again)
    again.leave()
    assert bench.delete() is ErrorCode.NONE
    bench.restart()
    gone = bench.coordinator.group_extensions(GROUP)
    assert not isinstance(gone, ErrorCode)
    assert gone.target_size == 0


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def test_a_crash_while_a_place_is_open_gives_the_lost_one_a_fresh_session(a_world: World) -> None:
    a_world.follower.leave()
    a_world.bench.restart()

    assert a_world.standby.heartbeat() is UNKNOWN
    assert a_world.leader.heartbeat() is ErrorCode.NONE
    back = a_world.standby.restarted()
    seated(back)
    keep_alive(SESSION_MS + 100, a_world.leader, back)

    assert a_world.bench.extensions().open_places == 1
    assert back.heartbeat() is REBALANCE
    back.join()
    assert partitions(back.sync()) == {1}


def test_a_crash_after_the_place_was_taken_calls_the_heir_again(a_world: World) -> None:
    a_world.follower.leave()
    a_world.standby.join()
    a_world.bench.restart()

    assert a_world.follower.heartbeat() is UNKNOWN
    assert a_world.standby.heartbeat() is REBALANCE
    assert not a_world.standby.join().parked
    assert partitions(a_world.standby.sync()) == {1}
    assert a_world.standby.heartbeat() is ErrorCode.NONE
    assert a_world.bench.extensions().assignment_epoch == 1_000_001
    assert no_rebalance(a_world)


@pytest.mark.parametrize("topic", ["t", "another"])
def test_one_that_went_and_returns_does_not_take_the_place_of_another(topic: str) -> None:
    """It was stored beside itself, and a broker that was killed then could not load the group (life 10031)."""
    # given a group of which two have gone, and standbys for both of them
    bench = Bench()
    bench.configure(target_size=3)
    one, two, three = (worker(bench, name, at) for name, at in (("1", 0), ("2", 1), ("3", 2)))
    stable(one, two, three)
    seated(worker(bench, "s"), worker(bench, "r"))
    two.leave()
    three.leave()
    assert [place.member.instance_id for place in bench.group().places] == ["2", "3"]

    # when the one that went last returns
    back = three.restarted(metadata=reads(topic))
    back.join()

    # then it has its own place, or waits if that is not one for it any more
    assert partitions(back.sync()) == ({2} if topic == "t" else set())
    assert len(bench.group().places) == (1 if topic == "t" else 2)
    bench.restart()
    assert bench.state() == "Stable"
