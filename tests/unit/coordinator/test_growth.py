"""Partitions that are added to a topic find a reader, whoever leads, and whenever the broker is killed."""

from __future__ import annotations

import pytest

from holdfast.coordinator.topic_sizes import TopicSizes
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import SESSION_MS, Bench
from tests.unit.coordinator.extension_scene import REBALANCE, all_rejoin, reads, rebalances, seated, share, worker
from tests.unit.coordinator.scene import Consumer, joined, keep_alive, stable, synced

NONE = ErrorCode.NONE


def topic_of(partitions: int) -> Bench:
    bench = Bench()
    bench.topics["t"] = partitions
    return bench


def pair(bench: Bench, *, leads: tuple[int, ...] = (0,), follows: tuple[int, ...] = (1,)) -> tuple[Consumer, Consumer]:
    """Given: a stable group of two static members with these shares."""
    leader, follower = worker(bench, "L", *leads), worker(bench, "F", *follows)
    stable(leader, follower)
    assert leader.leads
    return leader, follower


def is_quiet(*consumers: Consumer) -> bool:
    codes = {consumer.heartbeat() for consumer in consumers}
    assert codes in ({NONE}, {REBALANCE})
    return codes == {NONE}


# -- a broker that is killed -------------------------------------------------------------------------------------------


def test_growth_is_not_forgotten_by_a_broker_that_is_killed() -> None:
    """A static leader may not know that it leads, and its next process takes the topics as it finds them."""
    bench = topic_of(2)
    leader, follower = pair(bench)

    bench.topic_grew("t", 3)
    assert is_quiet(leader, follower), "the leader is expected to see to it"
    bench.restart()

    assert not is_quiet(leader, follower)


def test_nor_if_the_broker_is_killed_before_anybody_was_told() -> None:
    """The size of the topic is stored; between that and the next step the process may end."""
    bench = topic_of(2)
    leader, follower = pair(bench)

    bench.topics["t"] = 3
    bench.restart()

    assert not is_quiet(leader, follower)


def test_a_broker_that_is_killed_without_growth_disturbs_nobody() -> None:
    """The control."""
    bench = topic_of(2)
    leader, follower = pair(bench)

    bench.restart()

    assert is_quiet(leader, follower)
    assert not leader.restarted().join().parked
    assert is_quiet(follower)


@pytest.mark.parametrize("grows", [True, False])
def test_growth_between_a_generation_and_its_assignment(grows: bool) -> None:
    """The leader may have made its assignment before, and brings it to the broker that was started again."""
    # given a generation that awaits its assignment
    bench = topic_of(2)
    leader, follower = worker(bench, "L", 0), worker(bench, "F", 1)
    joined(leader, follower)

    # when the broker is killed then, and the leader brings what it has made
    if grows:
        bench.topic_grew("t", 3)
    bench.restart()
    synced(leader, follower)
    assert is_quiet(leader, follower)

    # then its next process does not take over what is not whole
    assert leader.restarted().join().parked is grows
    assert is_quiet(follower) is not grows


def test_growth_before_the_kill_is_seen_when_a_leader_that_has_no_seat_goes() -> None:
    """No standby takes over from it what it had not seen to; the same as before the kill."""
    bench = topic_of(2)
    bench.configure(target_size=2)
    leader, follower, standby = worker(bench, None, 0), worker(bench, "F", 1), worker(bench, "S")
    stable(leader, follower)
    assert leader.leads

    bench.topic_grew("t", 3)
    bench.restart()
    assert is_quiet(leader, follower)
    seated(standby)
    leader.leave()

    assert not is_quiet(follower)


def test_without_growth_a_standby_takes_over_from_such_a_leader() -> None:
    """The control."""
    bench = topic_of(2)
    bench.configure(target_size=2)
    leader, follower, standby = worker(bench, None, 0), worker(bench, "F", 1), worker(bench, "S")
    stable(leader, follower)

    bench.restart()
    seated(standby)
    leader.leave()

    assert is_quiet(follower)
    assert standby.heartbeat() is REBALANCE


# -- partitions that are left out on purpose ---------------------------------------------------------------------------


def test_what_an_assignor_leaves_out_costs_no_rebalance() -> None:
    bench = topic_of(4)
    leader, follower = pair(bench, leads=(0,), follows=(2,))
    before = rebalances(bench)

    leader = leader.restarted()
    assert not leader.join().parked
    for _ in range(3):
        bench.restart()
        assert is_quiet(leader, follower)

    assert rebalances(bench) == before


def test_nor_do_shares_that_nobody_can_read() -> None:
    bench = topic_of(4)
    leader, follower = worker(bench, "L"), worker(bench, "F")
    leader.assignment, follower.assignment = b"\x01", b"\x02"
    stable(leader, follower)

    bench.restart()

    assert is_quiet(leader, follower)


def test_what_is_added_to_them_costs_one_rebalance_and_not_one_for_each_restart() -> None:
    # given a group that leaves partitions out
    bench = topic_of(4)
    leader, follower = pair(bench, leads=(0,), follows=(2,))

    # when one is added and the broker is killed
    bench.topic_grew("t", 5)
    bench.restart()

    # then the group is asked for it once
    all_rejoin(leader, follower)
    bench.restart()
    assert is_quiet(leader, follower)
    assert not leader.restarted().join().parked


def test_what_was_left_out_stays_so_when_shares_grow_within_the_generation() -> None:
    """The record of a quiet change holds both."""
    bench = topic_of(4)
    leader, follower = pair(bench, leads=(0,), follows=(2,))

    bench.topic_grew("t", 5)
    epoch = bench.extensions().assignment_epoch
    assert leader.sync_with({leader.id: share(0, 4)}, resync_from_epoch=epoch).code is NONE
    bench.compact()
    bench.restart()

    assert bench.group().left_out == {"t": 4}
    assert leader.heartbeat() is REBALANCE, "it is called for its share"
    assert follower.heartbeat() is NONE, "and nobody else is"


def test_what_was_left_out_is_forgotten_with_its_generation() -> None:
    """A quiet change of a later one is stored in the same record."""
    # given a generation that left something out, and one that did not
    bench = topic_of(4)
    leader, follower = pair(bench, leads=(0,), follows=(2,))
    assert bench.group().left_out == {"t": 4}
    leader.assignment, follower.assignment = share(0, 1), share(2, 3)
    leader.join()
    all_rejoin(follower, also=[leader])

    # when its shares change
    bench.topic_grew("t", 5)
    epoch = bench.extensions().assignment_epoch
    assert leader.sync_with({leader.id: share(0, 1, 4)}, resync_from_epoch=epoch).code is NONE

    # then nothing of it is left
    assert bench.group().left_out == {}


# -- leaders that work from what they knew -----------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [True, False])
def test_a_leader_that_was_there_before_a_topic_grew_may_not_know(knows: bool) -> None:
    """Its metadata may be minutes old. If it goes before they are renewed, nobody would look again."""
    # given a topic that grew, and a leader that came after that, or before
    bench = topic_of(2)
    leader, follower = pair(bench)
    bench.topic_grew("t", 3)
    bench.advance(1)
    if knows:
        leader = leader.restarted(assignment=share(0))
        leader.join()
    else:
        leader.join()

    # when it makes an assignment without the new partition
    follower.join()
    leader.take()
    synced(leader, follower)

    # then it left it out on purpose if it knew of it
    assert leader.restarted().join().parked is not knows
    assert is_quiet(follower) is knows


def test_a_topic_that_grows_while_its_leaders_new_id_is_stored() -> None:
    """The leader is told to go on; by the time that it hears it, the topic is another (life 103945)."""
    bench = topic_of(2)
    leader, follower = pair(bench)

    bench.hold()
    leader = leader.restarted()
    assert leader.join().parked
    bench.topic_grew("t", 3)
    bench.release()
    leader.take()

    assert not is_quiet(leader, follower)


@pytest.mark.parametrize("grows", [True, False])
def test_a_leader_that_is_called_does_not_overlook_growth(grows: bool) -> None:
    """Its join would be answered with SkipAssignment, and it would take the topics as they are for what it assigned."""
    # given a leader whose share grew before the broker restarted, so that it is called
    bench = topic_of(3)
    leader, follower = worker(bench, None, 0), worker(bench, "F", 1)
    stable(leader, follower)
    assert leader.leads
    epoch = bench.extensions().assignment_epoch
    assert leader.sync_with({leader.id: share(0, 2)}, resync_from_epoch=epoch).code is NONE
    bench.restart()
    assert leader.heartbeat() is REBALANCE

    # when the topic has grown meanwhile
    if grows:
        bench.topic_grew("t", 4)
    answer = leader.join()

    # then its join is one that makes all rejoin
    assert answer.parked is grows
    assert is_quiet(follower) is not grows


# -- what is not growth ------------------------------------------------------------------------------------------------


def test_a_partition_that_is_handed_over_is_not_a_new_one() -> None:
    """KIP-429: it is nobody's for one generation. Its owner joins again for it; a rebalance would only come earlier."""
    bench = topic_of(2)
    owner, other = worker(bench, "L", 0, metadata=reads("t", owns=[0, 1])), worker(bench, "F")
    stable(owner, other)
    assert owner.leads

    bench.restart()

    assert is_quiet(owner, other)
    assert bench.group().left_out == {}, "nor was it left out"


def test_a_topic_that_is_new_has_grown_from_nothing() -> None:
    bench = topic_of(2)
    leader, follower = (worker(bench, name, at, metadata=reads("t", "later")) for name, at in (("L", 0), ("F", 1)))
    stable(leader, follower)

    bench.topic_grew("later", 1)
    bench.restart()

    assert not is_quiet(leader, follower)


def test_a_topic_that_only_a_standby_reads_is_nobody_elses_business() -> None:
    bench = topic_of(2)
    bench.configure(target_size=2)
    leader, follower = pair(bench)
    seated(worker(bench, "S", metadata=reads("another")))

    bench.topic_grew("another", 5)
    keep_alive(SESSION_MS, leader, follower)

    assert not leader.restarted().join().parked
    assert is_quiet(follower)


def test_what_somebody_knows_at_least() -> None:
    sizes = {"t": 9}
    topics = TopicSizes(lambda topic: sizes.get(topic, 0))
    topics.grew("t", 4, 50)
    topics.grew("t", 4, 100)
    topics.grew("t", 6, 200)

    assert [topics.surely_known("t", since) for since in (0, 100, 101, 200, 201)] == [4, 4, 6, 6, 9]
    topics.deleted("t")
    assert topics.surely_known("t", 0) == 9
    assert topics.surely_known("never heard of", 0) == 0
