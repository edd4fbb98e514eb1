"""Bugs that other coordinators had, one test each.

The name says whose bug it was, the docstring what went wrong there. Where a bug was of the newer consumer protocol
(KIP-848), which Holdfast does not serve, the test is of its counterpart in the protocol of this coordinator.
"""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.session import NEW_MEMBER_JOIN_TIMEOUT_MS
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import (
    GROUP,
    MIN_SESSION_MS,
    REBALANCE_MS,
    RETENTION_MS,
    SESSION_MS,
    CoordinatorHarness,
)
from tests.unit.coordinator.members import (
    Consumer,
    dynamic,
    joined,
    keep_alive,
    lone_member,
    pair,
    stable,
    subscription,
    synced,
)

# -- Apache Kafka, classic groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_kafka_8500_a_restarted_static_member_gets_a_new_id_in_every_state(state: str) -> None:
    """The member id was replaced in a stable group only, so two processes with one instance id could both consume."""
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    if state != "Stable":
        newcomer = dynamic(harness)
        newcomer.join()
    if state == "CompletingRebalance":
        leader.join()
        follower.join()
        follower.take()
    assert harness.state() == state
    old_id, old_generation = follower.id, harness.generation()

    follower.restarted().join()

    assert harness.group().members.static_member("F") is not None
    assert old_id not in harness.group().members
    assert harness.heartbeat(old_id, old_generation, instance="F") == ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(old_id, old_generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_8500_two_processes_that_start_in_one_join_phase() -> None:
    """Both joined in PreparingRebalance without an id, and both were let into the generation."""
    harness = CoordinatorHarness()
    first, second = Consumer(harness, instance="A"), Consumer(harness, instance="A")

    fenced, let_in = first.join(), second.join()
    harness.advance(1_000)

    assert (fenced.code, let_in.code) == (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE)
    assert len(harness.group().members) == 1


def test_kafka_9801_a_static_member_that_restarts_during_the_sync_gets_an_assignment() -> None:
    """It was answered without a rebalance; the leader then assigned to its old member id, and it got nothing."""
    harness = CoordinatorHarness()
    leader = Consumer(harness, instance="L", assignment=b"\x01")
    follower = Consumer(harness, instance="F", assignment=b"\x02")
    joined(leader, follower)

    restarted = follower.restarted(assignment=b"\x02")
    restarted.join()

    assert harness.state() == "PreparingRebalance"
    leader.join()
    restarted.take()
    assert leader.generation == restarted.generation == 2
    waiting = restarted.sync()
    leader.sync(restarted)
    assert waiting.reply.assignment == b"\x02"


def test_kafka_10284_the_new_id_of_a_static_member_survives_a_broker_restart() -> None:
    """It was kept in memory only; after a failover the old id was back and the live process was fenced."""
    harness = CoordinatorHarness()
    _, follower = pair(harness)
    restarted = follower.restarted()
    restarted.join()

    harness.restart()

    assert restarted.heartbeat() == ErrorCode.NONE
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert restarted.commit(1).codes == [ErrorCode.NONE]


@pytest.mark.parametrize("over_a_failover", [False, True])
def test_kafka_14009_a_restarted_static_member_has_its_new_timeouts(over_a_failover: bool) -> None:
    """The timeouts of a static member's first join stayed in force, whatever it was configured with later."""
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    restarted = follower.restarted(session_ms=MIN_SESSION_MS, rebalance_ms=2 * REBALANCE_MS)
    restarted.join()
    if over_a_failover:
        harness.restart()

    assert harness.group().members.max_rebalance_timeout_ms() == 2 * REBALANCE_MS
    keep_alive(2 * MIN_SESSION_MS, leader)

    assert restarted.id not in harness.group().members, "its new session is over"
    assert leader.id in harness.group().members, "the control: the old session, of the leader, is not"


def test_kafka_8653_and_brod_465_a_join_v0_waits_for_the_others_for_a_session() -> None:
    """JoinGroup v0 has no rebalance timeout; taken as -1, every join threw the other members out, in a loop."""
    harness = CoordinatorHarness()
    there = lone_member(harness, version=0)
    newcomer = Consumer(harness, version=0)

    assert newcomer.join().is_pending
    harness.advance(SESSION_MS // 2)
    assert there.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    there.join()
    newcomer.take()

    assert there.generation == newcomer.generation == 2
    assert {member.id for member in harness.group().members} == {there.id, newcomer.id}


def test_kafka_7610_abandoned_first_joins_expire() -> None:
    """A client that disconnected during its first join and came back as somebody else filled the group with members
    that had no session yet."""
    harness = CoordinatorHarness()
    holds_up = lone_member(harness, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    ghosts = [harness.join(version=3) for _ in range(5)]
    assert len(harness.group().members) == 6

    keep_alive(NEW_MEMBER_JOIN_TIMEOUT_MS - 1_000, holds_up, step_ms=1_000)
    assert len(harness.group().members) == 6, "the control: a first join may wait for that long"
    keep_alive(1_000, holds_up, step_ms=1_000)

    assert [ghost.code for ghost in ghosts] == [ErrorCode.UNKNOWN_MEMBER_ID] * 5
    assert [member.id for member in harness.group().members] == [holds_up.id]


def test_kop_380_a_leave_during_the_join_phase_completes_it() -> None:
    """The last one waited for left, nobody looked whether all were there now, and the others waited on."""
    harness = CoordinatorHarness()
    stays, leaves = dynamic(harness), dynamic(harness)
    stable(stays, leaves)
    newcomer = dynamic(harness)
    newcomer.join()
    stays.join()
    assert stays.joining is not None and stays.joining.is_pending, "the control: somebody is waited for"

    leaves.leave()

    stays.take()
    newcomer.take()
    assert stays.generation == newcomer.generation == 2


# -- Apache Kafka, newer consumer groups (KIP-848) and their counterparts ----------------------------------------------


def test_kafka_20641_a_static_leaver_leaves_nothing_half_done_behind() -> None:
    """KIP-848: a static member that left for a while kept "unrevoked partitions" that it no longer had to revoke.

    A classic group has no such state of a member: revoking is between the members. What a static member that goes away
    can leave behind here is its own half of a phase: a join or a sync that is waited for.
    """
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    newcomer = dynamic(harness)
    newcomer.join()
    leader.join()
    harness.advance(REBALANCE_MS)  # the follower stays away: it stays a member
    leader.take()
    newcomer.take()
    synced(leader, newcomer)
    assert harness.group().members.pending_sync_members == {follower.id}

    restarted = follower.restarted()
    restarted.join()
    answer = restarted.sync()

    assert answer.code == ErrorCode.NONE
    assert not harness.group().members.pending_sync_members
    keep_alive(2 * REBALANCE_MS, leader, newcomer, restarted)
    assert (harness.state(), harness.generation()) == ("Stable", 2)


def test_kafka_20434_static_members_with_another_assignor_are_assigned_again() -> None:
    """KIP-848: all static members came back with another assignor, and the assignment of the old one stayed.

    The counterpart: the protocol that a classic group elects changes once the restarted members have made it another's
    turn; until then nobody is disturbed.
    """
    harness = CoordinatorHarness()
    consumers = [Consumer(harness, instance=name, protocols=("range", "roundrobin")) for name in "ABC"]
    stable(*consumers)
    assert consumers[0].protocol_name == "range"

    first, second = (consumer.restarted(protocols=("roundrobin", "range")) for consumer in consumers[:2])
    first.join()
    assert (harness.state(), first.protocol_name) == ("Stable", "range"), "the control: one of three changes nothing"
    second.join()

    assert harness.state() == "PreparingRebalance"
    first.join()
    consumers[2].join()
    second.take()
    assert second.protocol_name == "roundrobin"
    assert second.generation == 2


# -- traps of static membership that users fell into -------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["joining", "syncing", "working"])
def test_jitsu_1491_a_restart_before_the_old_process_ended_replaces_it_at_once(phase: str) -> None:
    """The new consumer of one process started before the old one was closed; one of the two was fenced, and which one
    nobody could tell from any log. Here it is the old one, it hears so at once if it waits, and the ledger says it."""
    harness = CoordinatorHarness()
    leader, old = Consumer(harness, instance="L"), Consumer(harness, instance="F")
    waits = None
    if phase == "joining":
        leader.join()
        waits = old.join()
    else:
        joined(leader, old)
        waits = old.sync()
    if phase == "working":
        leader.sync(old)

    new = old.restarted()
    new.join()

    if phase == "working":
        assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert [event.instance_id for event in harness.events_of(EventKind.FENCED)] == ["F"]
        assert new.heartbeat() == ErrorCode.NONE
    else:
        assert waits.code == ErrorCode.FENCED_INSTANCE_ID
    new.leads = False
    keep_alive(REBALANCE_MS, leader)
    new.take()
    assert new.joining is None
    assert new.generation == harness.generation()


@pytest.mark.parametrize("was_restarted_before", [False, True])
def test_confluent_kafka_go_494_a_restarted_broker_fences_no_lone_consumer(
    was_restarted_before: bool,
) -> None:
    """After the broker's restart the only consumer of an instance id got the error that another one held it. The same
    as bitnami 3141."""
    harness = CoordinatorHarness()
    consumer = lone_member(harness, instance="1")
    if was_restarted_before:
        consumer = consumer.restarted()
        consumer.join()
        consumer.sync()

    harness.restart(only_load=True)
    while_loading = consumer.heartbeat()
    harness.finish_loading()

    assert while_loading == ErrorCode.NONE
    assert consumer.heartbeat() == ErrorCode.NONE
    assert consumer.commit(7).codes == [ErrorCode.NONE]
    assert harness.generation() == consumer.generation


def test_librdkafka_3437_a_static_consumer_with_an_expired_session_rejoins() -> None:
    """After its session had timed out a static consumer got "fenced", which is fatal, and hung."""
    harness = CoordinatorHarness()
    consumer = lone_member(harness, instance="A")

    harness.advance(SESSION_MS + 1)

    assert harness.state() == "Empty"
    assert consumer.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "after which every client joins again"
    again = consumer.restarted()
    stable(again)
    assert harness.state() == "Stable"


def test_librdkafka_3437_also_while_others_keep_the_group_alive() -> None:
    """The same, in a group that goes on without it."""
    harness = CoordinatorHarness()
    leader, sleeper = pair(harness)

    keep_alive(SESSION_MS + 100, leader)

    assert sleeper.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert sleeper.commit(1).codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_kafka_20985_a_lone_static_consumer_that_gives_a_join_up_is_not_fenced_by_it() -> None:
    """A join that the client had given up was processed late and fenced the consumer's own next attempt.

    That happens if the requests change places between client and coordinator. Here they do not: a join that has to wait
    for the disk waits in the order of arrival, so the one that was given up is the one that is fenced.
    """
    harness = CoordinatorHarness()
    consumer = lone_member(harness, instance="A")
    harness.pause_appends()
    consumer.commit(1)  # the disk stalls; what comes now waits
    given_up = consumer.restarted().join()
    again = consumer.restarted()
    again.join()
    assert given_up.is_pending

    harness.resume_appends()

    again.take()
    assert again.heartbeat() == ErrorCode.NONE
    assert harness.heartbeat(given_up.member_id, 1, instance="A") == ErrorCode.FENCED_INSTANCE_ID
    assert (harness.state(), harness.generation()) == ("Stable", 1)


@pytest.mark.parametrize(("version", "who_watches"), [(9, "the leader"), (8, "the coordinator")])
def test_kafka_pull_11559_new_partitions_are_seen_after_a_static_leader_restarted(
    version: int, who_watches: str
) -> None:
    """The restarted leader did not know that it leads, so nobody looked at the topics and new partitions stayed
    unread."""
    harness = CoordinatorHarness()
    leader, _ = pair(harness, metadata=subscription("t"))
    restarted = leader.restarted(version=version)
    answer = restarted.join()
    assert restarted.leads == (who_watches == "the leader")

    harness.topic_grew("t")

    if who_watches == "the leader":
        assert answer.reply.skip_assignment
        assert [member.group_instance_id for member in answer.reply.members] != [], "it sees whose topics to watch"
        assert harness.state() == "Stable", "it rejoins by itself"
        restarted.join()
    assert harness.state() == "PreparingRebalance"


@pytest.mark.parametrize("how", ["deleted", "swept"])
def test_xtdb_5917_the_generation_of_a_removed_group_does_not_restart(how: str) -> None:
    """A group without members was swept away, its generation began at 1 again, and members that used it as a fencing
    token was fenced for ever."""
    harness = CoordinatorHarness()
    consumer = lone_member(harness)
    token = consumer.generation
    consumer.leave()
    if how == "deleted":
        assert harness.delete() == ErrorCode.NONE
    else:
        harness.advance(RETENTION_MS)
        harness.sweep()
    assert harness.group_or_none() is None, "the control: nothing of it is left"
    harness.restart()

    newcomer = lone_member(harness, group=GROUP)

    assert newcomer.generation > token
    assert consumer.commit(1).codes == [ErrorCode.UNKNOWN_MEMBER_ID]
