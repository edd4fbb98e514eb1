"""Regressions of the extensions, each with a test."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_harness import ExtensionHarness
from tests.unit.coordinator.extension_members import assignment, connection, reads, rebalances, worker
from tests.unit.coordinator.harness import DELAY_MS, REBALANCE_MS, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, stable, subscription

NONE, IN_PROGRESS = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


def member(harness: CoordinatorHarness, instance: str | None = None, *partitions: int, **about: Any) -> Consumer:
    """A consumer of topic t, over a connection of its own."""
    settings = {"metadata": subscription("t"), "client": connection(), "protocols": ("range",), **about}
    return Consumer(harness, instance=instance, assignment=assignment(*partitions), **settings)


def owning(*partitions: int) -> bytes:
    """The subscription of a cooperative member, with what it owns."""
    return encode_subscription(Subscription(topics=["t"], owned_partitions=[TopicPartitions("t", [*partitions])]))


def is_standby(*standbys: Consumer) -> None:
    """Given: these are standbys."""
    for standby in standbys:
        assert standby.join().code is NONE
        assert standby.sync().code is NONE
        assert standby.id in standby.harness.extensions(standby.group).standbys


def pair_and_standby(harness: CoordinatorHarness) -> tuple[Consumer, Consumer, Consumer]:
    """Given: a leader and a follower of a group whose target is two, and a standby."""
    leader, follower = member(harness, "L", 0), member(harness, "F", 1)
    stable(leader, follower)
    harness.configure(target_size=2)
    standby = member(harness, "S")
    is_standby(standby)
    return leader, follower, standby


# -- members -----------------------------------------------------------------------------------------------------------


def test_a_former_standby_does_not_expire_while_its_join_is_parked() -> None:
    """A parked join keeps its member alive, also if it was a standby before."""
    harness = ExtensionHarness()
    slow = member(harness, "slow", 0, rebalance_ms=10 * SESSION_MS, session_ms=20 * SESSION_MS)
    stable(slow)
    harness.add_members("A", "B")
    arrived = member(harness, "A")
    is_standby(arrived)

    # The last registered member is there: a rebalance begins, and waits for one that takes its time.
    member(harness, "B").join()
    assert arrived.heartbeat() is IN_PROGRESS
    joining = arrived.join()
    harness.advance(3 * SESSION_MS)

    assert joining.is_pending
    assert arrived.id not in [event.member_id for event in harness.events_of(EventKind.SESSION_EXPIRED)]


def test_heartbeats_keep_a_promoted_standby_of_an_old_generation_alive() -> None:
    """It was asked to join and its session ran on, although as long as it only waited such a heartbeat kept it
    alive."""
    # given a standby that has not learned of the last generation when a rebalance is to admit it
    harness = ExtensionHarness()
    leader = member(harness, "L", 0, rebalance_ms=10 * SESSION_MS, session_ms=20 * SESSION_MS)
    stable(leader)
    harness.configure(target_size=1)
    standby = member(harness, "S")
    is_standby(standby)
    leader.metadata = owning(0)
    leader.join()
    leader.sync()
    assert (standby.generation, harness.generation()) == (1, 2)
    harness.configure(target_size=2)

    # when it is too busy to join, for longer than its session
    answers = []
    for _ in range(10):
        harness.advance(SESSION_MS // 2)
        answers.append(standby.heartbeat())

    # then it is asked to join, every time, and is in the generation when it does
    assert answers == [IN_PROGRESS] * 10
    joining = standby.join()
    leader.join()
    assert joining.generation == 3


@pytest.mark.parametrize("comes", ["new", "again"])
def test_a_standby_that_does_not_support_the_protocol_makes_the_group_change_it(comes: str) -> None:
    """A client that gets a protocol that it did not offer gives up; it must not join under that one."""
    harness = ExtensionHarness()
    leader = member(harness, "L", 0, protocols=("range", "roundrobin"))
    stable(leader)
    harness.configure(target_size=1)
    standby = member(harness, "S", protocols=("range", "roundrobin") if comes == "again" else ("roundrobin",))
    if comes == "again":
        is_standby(standby)
        standby.protocols = ("roundrobin",)

    handle = standby.join()
    assert leader.heartbeat() is IN_PROGRESS
    leader.join()

    assert handle.reply.protocol_name == "roundrobin"
    assert harness.extensions().standbys == [handle.member_id]
    assert harness.group().stored.protocol_name == "roundrobin"


def test_a_standby_that_syncs_in_an_old_generation_must_rejoin_whatever_its_protocol() -> None:
    harness = ExtensionHarness()
    leader = member(harness, "L", 0, protocols=("range", "roundrobin"))
    stable(leader)
    harness.configure(target_size=1)
    standby = member(harness, "S", protocols=("range", "roundrobin"))
    assert standby.join().code is NONE

    leader.protocols = ("roundrobin",)
    leader.join()
    leader.sync()
    assert harness.group().stored.protocol_name == "roundrobin"

    # INCONSISTENT_GROUP_PROTOCOL would end the standby's client.
    assert standby.sync().code is IN_PROGRESS


def test_streams_members_never_become_standbys() -> None:
    """Kafka Streams reads user data out of every assignment, and an empty assignment has none: its client would die of
    it."""
    harness = ExtensionHarness()
    leader = member(harness, "L", 0, protocols=("stream",))
    stable(leader)
    harness.configure(target_size=1)
    harness.add_members("A", "B")

    joining = member(harness, "A", protocols=("stream",)).join()

    assert joining.is_pending
    assert leader.heartbeat() is IN_PROGRESS


@pytest.mark.parametrize("first", ["sync", "commit"])
def test_a_standby_that_returns_is_taken_in_whatever_it_asks_first(first: str) -> None:
    harness = ExtensionHarness()
    leader = member(harness, "L", 0)
    stable(leader)
    harness.configure(target_size=1)
    standby = member(harness, "S")
    is_standby(standby)
    harness.disconnect(standby.client)
    harness.configure(target_size=2)
    assert harness.state() == "Stable", "no member is connected that could be the second one"

    standby.client = connection()
    if first == "sync":
        assert standby.sync().code is NONE
    else:
        harness.commit_over(standby.client, standby.id, standby.generation)

    assert harness.state() == "PreparingRebalance"


# -- in-generation changes ---------------------------------------------------------------------------------------------


def test_a_generation_with_many_changes_remembers_only_current_members() -> None:
    """Many takeovers of one assignment: the stored record must not grow with each."""
    harness = ExtensionHarness()
    leader, holder, standby = pair_and_standby(harness)
    for _ in range(20):
        holder.leave()
        standby.heartbeat()
        standby.join()
        standby.sync()
        holder.id, holder.generation = "", -1
        is_standby(holder)
        holder, standby = standby, holder

    assert harness.extensions().assignment_epoch % 1_000 == 20
    assert len(harness.group().extensions.changed_members) <= len(harness.group().members)
    assert leader.heartbeat() is NONE


# -- growth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["dies", "restarts"])
def test_partitions_that_were_added_before_the_leader_went_are_not_forgotten(loss: str) -> None:
    """Any member that leads next with SkipAssignment takes the topics as they are for what was assigned, so no
    member would check."""
    harness = ExtensionHarness()
    leader, follower, _ = pair_and_standby(harness)
    harness.topic_grew("t")
    assert follower.heartbeat() is NONE, "its leader is expected to see to it"

    if loss == "dies":
        leader.leave()
    else:
        leader.restarted().join()

    assert follower.heartbeat() is IN_PROGRESS


def test_a_leader_that_went_before_anything_grew_is_replaced_quietly() -> None:
    harness = ExtensionHarness()
    leader, follower, standby = pair_and_standby(harness)
    harness.topic_grew("another")

    leader.leave()

    assert follower.heartbeat() is NONE
    assert standby.heartbeat() is IN_PROGRESS


# -- registrations -----------------------------------------------------------------------------------------------------


def test_a_group_that_expects_members_and_has_none_is_empty() -> None:
    """Otherwise no one could delete it or set its offsets before the wait is over, which may be days."""
    harness = ExtensionHarness()
    harness.add_members("A", "B", wait_ms=3_600_000)
    first = member(harness, "A")
    assert first.join().is_pending
    stored = sum(map(len, harness.group_log.values()))

    harness.disconnect(first.client)

    assert harness.state() == "Empty"
    assert sum(map(len, harness.group_log.values())) == stored, (
        "a member that joins and disconnects in a loop fills no disk"
    )
    assert harness.commit({("t", 0): 5}).codes == [NONE]
    assert [expected.group_instance_id for expected in harness.extensions().expected] == ["A", "B"]


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_a_member_with_an_ended_registration_does_not_wait_for_registered_ones(end: str) -> None:
    """Two registrations of an empty group: when the wait of the first one is over, its members form a generation."""
    harness = ExtensionHarness()
    harness.add_members("A", wait_ms=1_000)
    harness.add_members("B", wait_ms=3_600_000)
    joining = member(harness, "A", rebalance_ms=3_600_000).join()
    harness.advance(900)
    assert joining.is_pending

    if end == "cancelled":
        harness.cancel("A")
    harness.advance(100 + 2 * DELAY_MS)

    assert joining.code is NONE


def test_registered_members_wait_for_each_other_also_if_there_is_a_vacancy() -> None:
    """Otherwise it would count as expected, and the others would wait until the registration expires."""
    harness = ExtensionHarness()
    _, follower, standby = pair_and_standby(harness)
    harness.add_members("A", "B", wait_ms=600_000)
    follower.leave()

    first = member(harness, "A")
    first.join()
    standby.heartbeat()
    standby.join()
    assert standby.sync().reply.assignment == follower.assignment
    second = member(harness, "B")
    second.join()

    assert not harness.extensions().expected, "both have arrived"
    assert {first.id, second.id} <= set(harness.extensions().standbys)


def test_many_ids_in_one_request_take_no_longer_than_there_are() -> None:
    """A request of a few megabytes must not stop the broker for minutes."""
    harness = ExtensionHarness(checked=False)
    ids = [f"member-{number}" for number in range(150_000)]

    began = time.process_time()
    refused = harness.add_members(*ids).reply
    accepted = harness.add_members(*ids[:10_000]).reply

    assert time.process_time() - began < 10
    assert refused.error_code == INVALID_REQUEST and not refused.results
    assert sum(result.error_code == NONE for result in accepted.results) == 10_000


def test_joins_of_a_registered_member_in_a_loop_leave_no_timers_behind() -> None:
    harness = ExtensionHarness(checked=False)
    harness.add_members("A", "B")
    consumer = member(harness, "A", rebalance_ms=600_000)
    consumer.join()
    joins = [harness.join(instance="A", protocols=("range",), metadata=subscription("t")) for _ in range(10_000)]

    assert joins[-1].is_pending
    assert harness.queued_timers < 5_000


# -- standbys ----------------------------------------------------------------------------------------------------------


def test_a_target_that_is_lowered_counts_vacancies() -> None:
    harness = ExtensionHarness()
    leader, follower, standby = pair_and_standby(harness)
    follower.leave()
    assert harness.extensions().vacancies == 1

    harness.configure(target_size=1)
    standby.join()

    assert harness.extensions().vacancies == 0
    assert len(harness.group().members) == 1
    assert leader.heartbeat() is IN_PROGRESS, "its partitions are assigned to the others"


def test_a_standby_that_changes_its_topics_is_no_longer_asked_to_rejoin() -> None:
    """Otherwise it would be asked to rejoin for as long as there is a vacancy, which no other member can fill."""
    harness = ExtensionHarness()
    leader, follower, standby = pair_and_standby(harness)
    follower.leave()
    assert standby.heartbeat() is IN_PROGRESS

    standby.metadata = subscription("other")
    standby.join()

    assert harness.extensions().vacancies == 0
    assert leader.heartbeat() is IN_PROGRESS, "no standby can fill the vacancy: the group rebalances"


def test_members_with_an_expired_registration_are_asked_to_fill_the_vacancy() -> None:
    harness = ExtensionHarness()
    _, follower, standby = pair_and_standby(harness)
    harness.add_members("A", "B", wait_ms=SESSION_MS // 2)
    registered = member(harness, "A")
    is_standby(registered)
    follower.leave()
    assert registered.heartbeat() is NONE

    harness.advance(SESSION_MS // 2)
    assert harness.extensions().vacancies == 1
    standby.leave()

    assert registered.heartbeat() is IN_PROGRESS
    registered.join()
    assert registered.sync().reply.assignment == follower.assignment


@pytest.mark.parametrize("end", ["expires", "is cancelled", "is complete"])
def test_when_a_registration_ends_its_member_is_also_asked_to_fill_the_vacancy(end: str) -> None:
    """The standby that was asked first may be slow; the vacancy waited for it alone."""
    # given a vacancy for which a standby is asked to rejoin, and a member that waits for another one
    harness = ExtensionHarness()
    _, follower, _ = pair_and_standby(harness)
    harness.add_members("A", "B", wait_ms=SESSION_MS // 2)
    registered = member(harness, "A")
    is_standby(registered)
    follower.leave()
    assert registered.heartbeat() is NONE

    # when it no longer waits for another member
    if end == "expires":
        harness.advance(SESSION_MS // 2)
    elif end == "is cancelled":
        harness.cancel()
    else:
        is_standby(member(harness, "B"))
    assert harness.extensions().vacancies == 1

    # then it may fill the vacancy
    assert registered.heartbeat() is IN_PROGRESS
    registered.join()
    assert registered.sync().reply.assignment == follower.assignment


# -- cooperative hand-over ---------------------------------------------------------------------------------------------


def test_a_static_member_restarted_during_a_hand_over_orphans_no_partition() -> None:
    """KIP-429: it was to give p up and to join again; its new process owns nothing and would not."""
    harness = ExtensionHarness()
    giver = member(harness, "G", 0, metadata=owning(), rebalance_ms=10 * REBALANCE_MS)
    taker = member(harness, "T", metadata=owning(), rebalance_ms=10 * REBALANCE_MS)
    stable(giver, taker)
    giver.metadata = owning(0, 1)
    giver.join()
    assert taker.heartbeat() is IN_PROGRESS
    taker.join()
    for one in (giver, taker):
        one.take()
    followers = [one for one in (giver, taker) if not one.leads]
    waiting = [one.sync() for one in followers]
    (leader,) = [one for one in (giver, taker) if one.leads]
    leader.sync(*followers)
    assert waiting[0].code is NONE
    assert harness.extensions().settled is False, "partition 1 is on its way"

    giver.restarted(metadata=owning()).join()

    assert harness.state() == "PreparingRebalance"


def test_a_claim_to_what_another_has_does_not_make_a_restart_a_rebalance() -> None:
    """kafka-python claims partitions that it has lost. No member waits for it to revoke them."""
    harness = CoordinatorHarness()
    owner = worker(harness, "owner", 0, 1)
    claims = worker(harness, "claims", 2, metadata=reads("t", owns=[1, 2], generation=0))
    stable(owner, claims)
    before = rebalances(harness)

    assert not claims.restarted().join().is_pending

    assert rebalances(harness) == before


def test_a_newcomers_heartbeat_in_another_generation_is_illegal_as_in_kafka() -> None:
    """Only a standby that has not learned of the generation is asked to join; found by random runs beside Kafka."""
    harness = CoordinatorHarness()
    stable(worker(harness, "there", 0))
    newcomer = worker(harness, None)
    assert newcomer.join().is_pending

    newcomer.generation = 7

    assert newcomer.heartbeat() is ErrorCode.ILLEGAL_GENERATION
