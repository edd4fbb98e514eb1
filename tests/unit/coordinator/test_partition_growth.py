"""Partitions that are added to a topic find a reader, whatever member leads, and whenever the broker is killed."""

from __future__ import annotations

import pytest

from holdfast.coordinator.extensions.record import unassigned_in_generation
from holdfast.coordinator.runtime.topic_metadata import TopicMetadata
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    REBALANCE,
    all_rejoin,
    assignment,
    is_standby,
    reads,
    rebalances,
    worker,
)
from tests.unit.coordinator.harness import SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, joined, keep_alive, stable, synced

NONE = ErrorCode.NONE


def topic_of(partitions: int) -> CoordinatorHarness:
    harness = CoordinatorHarness()
    harness.topics["t"] = partitions
    return harness


def pair(
    harness: CoordinatorHarness, *, leads: tuple[int, ...] = (0,), follows: tuple[int, ...] = (1,)
) -> tuple[Consumer, Consumer]:
    """Given: a stable group of two static members with these shares."""
    leader, follower = worker(harness, "L", *leads), worker(harness, "F", *follows)
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
    harness = topic_of(2)
    leader, follower = pair(harness)

    harness.topic_grew("t", 3)
    assert is_quiet(leader, follower), "the leader is expected to see to it"
    harness.restart()

    assert not is_quiet(leader, follower)


def test_growth_is_found_after_a_kill_before_any_member_was_notified() -> None:
    """The size of the topic is stored; between that and the next step the process may end."""
    harness = topic_of(2)
    leader, follower = pair(harness)

    harness.topics["t"] = 3
    harness.restart()

    assert not is_quiet(leader, follower)


def test_a_killed_broker_without_growth_causes_no_rebalance() -> None:
    """The control."""
    harness = topic_of(2)
    leader, follower = pair(harness)

    harness.restart()

    assert is_quiet(leader, follower)
    assert not leader.restarted().join().is_pending
    assert is_quiet(follower)


@pytest.mark.parametrize("grows", [True, False])
def test_growth_between_a_generation_and_its_assignment(grows: bool) -> None:
    """The leader may have made its assignment before, and brings it to the broker that was started again."""
    # given a generation that awaits its assignment
    harness = topic_of(2)
    leader, follower = worker(harness, "L", 0), worker(harness, "F", 1)
    joined(leader, follower)

    # when the broker is killed then, and the leader brings what it has made
    if grows:
        harness.topic_grew("t", 3)
    harness.restart()
    synced(leader, follower)
    assert is_quiet(leader, follower)

    # then its next process does not take over what is not whole
    assert leader.restarted().join().is_pending is grows
    assert is_quiet(follower) is not grows


def test_growth_before_a_kill_is_found_when_a_leader_that_is_a_standby_leaves() -> None:
    """No standby takes over from it what it had not seen to; the same as before the kill."""
    harness = topic_of(2)
    harness.configure(target_size=2)
    leader, follower, standby = worker(harness, None, 0), worker(harness, "F", 1), worker(harness, "S")
    stable(leader, follower)
    assert leader.leads

    harness.topic_grew("t", 3)
    harness.restart()
    assert is_quiet(leader, follower)
    is_standby(standby)
    leader.leave()

    assert not is_quiet(follower)


def test_without_growth_a_standby_takes_over_from_such_a_leader() -> None:
    """The control."""
    harness = topic_of(2)
    harness.configure(target_size=2)
    leader, follower, standby = worker(harness, None, 0), worker(harness, "F", 1), worker(harness, "S")
    stable(leader, follower)

    harness.restart()
    is_standby(standby)
    leader.leave()

    assert is_quiet(follower)
    assert standby.heartbeat() is REBALANCE


# -- partitions that are left out on purpose ---------------------------------------------------------------------------


def test_what_an_assignor_leaves_out_costs_no_rebalance() -> None:
    harness = topic_of(4)
    leader, follower = pair(harness, leads=(0,), follows=(2,))
    before = rebalances(harness)

    leader = leader.restarted()
    assert not leader.join().is_pending
    for _ in range(3):
        harness.restart()
        assert is_quiet(leader, follower)

    assert rebalances(harness) == before


def test_unreadable_assignments_cause_no_rebalance() -> None:
    harness = topic_of(4)
    leader, follower = worker(harness, "L"), worker(harness, "F")
    leader.assignment, follower.assignment = b"\x01", b"\x02"
    stable(leader, follower)

    harness.restart()

    assert is_quiet(leader, follower)


def test_what_is_added_to_them_costs_one_rebalance_and_not_one_for_each_restart() -> None:
    # given a group that leaves partitions out
    harness = topic_of(4)
    leader, follower = pair(harness, leads=(0,), follows=(2,))

    # when one is added and the broker is killed
    harness.topic_grew("t", 5)
    harness.restart()

    # then the group is asked for it once
    all_rejoin(leader, follower)
    harness.restart()
    assert is_quiet(leader, follower)
    assert not leader.restarted().join().is_pending


def test_topics_left_unassigned_stay_so_when_assignments_grow_in_the_generation() -> None:
    """The record of an in-generation change holds both."""
    harness = topic_of(4)
    leader, follower = pair(harness, leads=(0,), follows=(2,))

    harness.topic_grew("t", 5)
    epoch = harness.extensions().assignment_epoch
    assert leader.sync_with({leader.id: assignment(0, 4)}, resync_from_epoch=epoch).code is NONE
    harness.compact()
    harness.restart()

    assert unassigned_in_generation(harness.group()) == {"t": 4}
    assert leader.heartbeat() is REBALANCE, "it is asked to rejoin for its assignment"
    assert follower.heartbeat() is NONE, "and no other member is"


def test_what_was_left_out_is_forgotten_with_its_generation() -> None:
    """An in-generation change of a later one is stored in the same record."""
    # given a generation that left something out, and one that did not
    harness = topic_of(4)
    leader, follower = pair(harness, leads=(0,), follows=(2,))
    assert unassigned_in_generation(harness.group()) == {"t": 4}
    leader.assignment, follower.assignment = assignment(0, 1), assignment(2, 3)
    leader.join()
    all_rejoin(follower, also=[leader])

    # when its assignments change
    harness.topic_grew("t", 5)
    epoch = harness.extensions().assignment_epoch
    assert leader.sync_with({leader.id: assignment(0, 1, 4)}, resync_from_epoch=epoch).code is NONE

    # then nothing of it is left
    assert unassigned_in_generation(harness.group()) == {}


# -- leaders that work from what they knew -----------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [True, False])
def test_a_leader_that_was_there_before_a_topic_grew_may_not_know(knows: bool) -> None:
    """Its metadata may be minutes old. If it goes before they are renewed, nobody would look again."""
    # given a topic that grew, and a leader that came after that, or before
    harness = topic_of(2)
    leader, follower = pair(harness)
    harness.topic_grew("t", 3)
    harness.advance(1)
    if knows:
        leader = leader.restarted(assignment=assignment(0))
        leader.join()
    else:
        leader.join()

    # when it makes an assignment without the new partition
    follower.join()
    leader.take()
    synced(leader, follower)

    # then it left it out on purpose if it knew of it
    assert leader.restarted().join().is_pending is not knows
    assert is_quiet(follower) is knows


def test_a_topic_that_grows_while_its_leaders_new_id_is_stored() -> None:
    """The leader is asked to go on; by the time that it hears it, the topic is another (seed 103945)."""
    harness = topic_of(2)
    leader, follower = pair(harness)

    harness.pause_appends()
    leader = leader.restarted()
    assert leader.join().is_pending
    harness.topic_grew("t", 3)
    harness.resume_appends()
    leader.take()

    assert not is_quiet(leader, follower)


@pytest.mark.parametrize("grows", [True, False])
def test_a_leader_that_is_asked_to_rejoin_does_not_overlook_growth(grows: bool) -> None:
    """Its join would be answered with SkipAssignment, and it would take the topics as they are for what it assigned."""
    # given a leader whose assignment grew before the broker restarted, so that it is asked to rejoin
    harness = topic_of(3)
    leader, follower = worker(harness, None, 0), worker(harness, "F", 1)
    stable(leader, follower)
    assert leader.leads
    epoch = harness.extensions().assignment_epoch
    assert leader.sync_with({leader.id: assignment(0, 2)}, resync_from_epoch=epoch).code is NONE
    harness.restart()
    assert leader.heartbeat() is REBALANCE

    # when the topic has grown meanwhile
    if grows:
        harness.topic_grew("t", 4)
    answer = leader.join()

    # then its join is one that makes all rejoin
    assert answer.is_pending is grows
    assert is_quiet(follower) is not grows


# -- what is not growth ------------------------------------------------------------------------------------------------


def test_a_partition_that_is_handed_over_is_not_a_new_one() -> None:
    """KIP-429: it is nobody's for one generation. Its owner joins again for it; a rebalance would only come earlier."""
    harness = topic_of(2)
    owner, other = worker(harness, "L", 0, metadata=reads("t", owns=[0, 1])), worker(harness, "F")
    stable(owner, other)
    assert owner.leads

    harness.restart()

    assert is_quiet(owner, other)
    assert unassigned_in_generation(harness.group()) == {}, "nor was it left out"


def test_a_topic_that_is_new_has_grown_from_nothing() -> None:
    harness = topic_of(2)
    leader, follower = (worker(harness, name, at, metadata=reads("t", "later")) for name, at in (("L", 0), ("F", 1)))
    stable(leader, follower)

    harness.topic_grew("later", 1)
    harness.restart()

    assert not is_quiet(leader, follower)


def test_growth_of_a_topic_that_only_a_standby_reads_causes_no_rebalance() -> None:
    harness = topic_of(2)
    harness.configure(target_size=2)
    leader, follower = pair(harness)
    is_standby(worker(harness, "S", metadata=reads("another")))

    harness.topic_grew("another", 5)
    keep_alive(SESSION_MS, leader, follower)

    assert not leader.restarted().join().is_pending
    assert is_quiet(follower)


def test_partitions_known_since_is_a_lower_bound() -> None:
    sizes = {"t": 9}
    topics = TopicMetadata(lambda topic: sizes.get(topic, 0))
    topics.grew("t", 4, 50)
    topics.grew("t", 4, 100)
    topics.grew("t", 6, 200)

    assert [topics.partitions_known_since("t", since) for since in (0, 100, 101, 200, 201)] == [4, 4, 6, 6, 9]
    topics.deleted("t")
    assert topics.partitions_known_since("t", 0) == 9
    assert topics.partitions_known_since("never heard of", 0) == 0
