"""What a hostile reading of the extensions found: one test for each way in which they went wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.wire.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import DELAY_MS, REBALANCE_MS, SESSION_MS, Bench
from tests.unit.coordinator.extension_bench import ExtensionBench
from tests.unit.coordinator.extension_scene import connection, reads, rebalances, share, worker
from tests.unit.coordinator.scene import Consumer, stable, subscription

NONE, IN_PROGRESS = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


def member(bench: Bench, instance: str | None = None, *partitions: int, **about: Any) -> Consumer:
    """A consumer of topic t, over a connection of its own."""
    settings = {"metadata": subscription("t"), "client": connection(), "protocols": ("range",), **about}
    return Consumer(bench, instance=instance, assignment=share(*partitions), **settings)


def owning(*partitions: int) -> bytes:
    """The subscription of a cooperative member, with what it owns."""
    return encode_subscription(Subscription(topics=["t"], owned_partitions=[TopicPartitions("t", [*partitions])]))


def seated(*standbys: Consumer) -> None:
    """Given: these wait."""
    for standby in standbys:
        assert standby.join().code is NONE
        assert standby.sync().code is NONE
        assert standby.id in standby.bench.extensions(standby.group).waiting


def pair_and_standby(bench: Bench) -> tuple[Consumer, Consumer, Consumer]:
    """Given: a leader and a follower of a group whose target is two, and a standby."""
    leader, follower = member(bench, "L", 0), member(bench, "F", 1)
    stable(leader, follower)
    bench.configure(target_size=2)
    standby = member(bench, "S")
    seated(standby)
    return leader, follower, standby


# -- seats -------------------------------------------------------------------------------------------------------------


def test_whoever_waited_is_not_expelled_while_its_join_is_parked() -> None:
    """A join that is parked is alive by that, also if its owner had a seat before it took part."""
    bench = ExtensionBench()
    slow = member(bench, "slow", 0, rebalance_ms=10 * SESSION_MS, session_ms=20 * SESSION_MS)
    stable(slow)
    bench.add_members("A", "B")
    arrived = member(bench, "A")
    seated(arrived)

    # The last announced member is there: a rebalance begins, and waits for one that takes its time.
    member(bench, "B").join()
    assert arrived.heartbeat() is IN_PROGRESS
    joining = arrived.join()
    bench.advance(3 * SESSION_MS)

    assert joining.parked
    assert arrived.id not in [event.member_id for event in bench.told(EventKind.SESSION_EXPIRED)]


def test_whoever_waited_in_an_old_generation_is_not_expelled_while_it_says_that_it_lives() -> None:
    """It was told to join and its session ran on, although as long as it only waited such a heartbeat kept it alive."""
    # given a standby that has not heard of the last generation when a rebalance is to take it in
    bench = ExtensionBench()
    leader = member(bench, "L", 0, rebalance_ms=10 * SESSION_MS, session_ms=20 * SESSION_MS)
    stable(leader)
    bench.configure(target_size=1)
    standby = member(bench, "S")
    seated(standby)
    leader.metadata = owning(0)
    leader.join()
    leader.sync()
    assert (standby.generation, bench.generation()) == (1, 2)
    bench.configure(target_size=2)

    # when it is too busy to join, for longer than its session
    answers = []
    for _ in range(10):
        bench.advance(SESSION_MS // 2)
        answers.append(standby.heartbeat())

    # then it is told to join, every time, and has its place when it does
    assert answers == [IN_PROGRESS] * 10
    joining = standby.join()
    leader.join()
    assert joining.generation == 3


@pytest.mark.parametrize("comes", ["new", "again"])
def test_a_standby_that_does_not_offer_the_protocol_in_use_makes_the_group_choose_another(comes: str) -> None:
    """Told of a protocol that it did not offer, a client gives up; it must not get its seat under that one."""
    bench = ExtensionBench()
    leader = member(bench, "L", 0, protocols=("range", "roundrobin"))
    stable(leader)
    bench.configure(target_size=1)
    standby = member(bench, "S", protocols=("range", "roundrobin") if comes == "again" else ("roundrobin",))
    if comes == "again":
        seated(standby)
        standby.protocols = ("roundrobin",)

    handle = standby.join()
    assert leader.heartbeat() is IN_PROGRESS
    leader.join()

    assert handle.reply.protocol_name == "roundrobin"
    assert bench.extensions().waiting == [handle.member_id]
    assert bench.group().stored.protocol_name == "roundrobin"


def test_a_standby_that_syncs_in_an_old_generation_is_told_to_join_whatever_its_protocol() -> None:
    bench = ExtensionBench()
    leader = member(bench, "L", 0, protocols=("range", "roundrobin"))
    stable(leader)
    bench.configure(target_size=1)
    standby = member(bench, "S", protocols=("range", "roundrobin"))
    assert standby.join().code is NONE

    leader.protocols = ("roundrobin",)
    leader.join()
    leader.sync()
    assert bench.group().stored.protocol_name == "roundrobin"

    # INCONSISTENT_GROUP_PROTOCOL would end the standby's client.
    assert standby.sync().code is IN_PROGRESS


def test_streams_members_have_no_seats() -> None:
    """Kafka Streams reads user data out of every share, and an empty share has none: its client would die of it."""
    bench = ExtensionBench()
    leader = member(bench, "L", 0, protocols=("stream",))
    stable(leader)
    bench.configure(target_size=1)
    bench.add_members("A", "B")

    joining = member(bench, "A", protocols=("stream",)).join()

    assert joining.parked
    assert leader.heartbeat() is IN_PROGRESS


@pytest.mark.parametrize("first", ["sync", "commit"])
def test_a_standby_that_returns_is_taken_in_whatever_it_asks_first(first: str) -> None:
    bench = ExtensionBench()
    leader = member(bench, "L", 0)
    stable(leader)
    bench.configure(target_size=1)
    standby = member(bench, "S")
    seated(standby)
    bench.hang_up(standby.client)
    bench.configure(target_size=2)
    assert bench.state() == "Stable", "nobody is there for the second place"

    standby.client = connection()
    if first == "sync":
        assert standby.sync().code is NONE
    else:
        bench.commit_over(standby.client, standby.id, standby.generation)

    assert bench.state() == "PreparingRebalance"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_generation_with_many_changes_remembers_only_those_who_are_there() -> None:
    """A place that changes hands over and over: the record of it must not grow with every time."""
    bench = ExtensionBench()
    leader, holder, standby = pair_and_standby(bench)
    for _ in range(20):
        holder.leave()
        standby.heartbeat()
        standby.join()
        standby.sync()
        holder.id, holder.generation = "", -1
        seated(holder)
        holder, standby = standby, holder

    assert bench.extensions().assignment_epoch % 1_000 == 20
    assert len(bench.group().extensions.changed) <= len(bench.group().roster)
    assert leader.heartbeat() is NONE


# -- growth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goes", ["dies", "restarts"])
def test_partitions_that_were_added_before_the_leader_went_are_not_forgotten(goes: str) -> None:
    """Whoever leads next with SkipAssignment takes the topics as they are for what was assigned; nobody would look."""
    bench = ExtensionBench()
    leader, follower, _ = pair_and_standby(bench)
    bench.topic_grew("t")
    assert follower.heartbeat() is NONE, "its leader is expected to see to it"

    if goes == "dies":
        leader.leave()
    else:
        leader.restarted().join()

    assert follower.heartbeat() is IN_PROGRESS


def test_a_leader_that_went_before_anything_grew_is_replaced_quietly() -> None:
    bench = ExtensionBench()
    leader, follower, standby = pair_and_standby(bench)
    bench.topic_grew("another")

    leader.leave()

    assert follower.heartbeat() is NONE
    assert standby.heartbeat() is IN_PROGRESS


# -- registrations -----------------------------------------------------------------------------------------------------


def test_a_group_that_expects_members_and_has_none_is_empty() -> None:
    """Else nobody could delete it or set its offsets before the wait is over, which may be days."""
    bench = ExtensionBench()
    bench.add_members("A", "B", wait_ms=3_600_000)
    first = member(bench, "A")
    assert first.join().parked
    stored = sum(map(len, bench.journal.values()))

    bench.hang_up(first.client)

    assert bench.state() == "Empty"
    assert sum(map(len, bench.journal.values())) == stored, "one who comes and goes in a loop fills no disk"
    assert bench.commit({("t", 0): 5}).codes == [NONE]
    assert [expected.group_instance_id for expected in bench.extensions().expected] == ["A", "B"]


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_one_who_is_announced_no_longer_does_not_wait_for_those_who_are(end: str) -> None:
    """Two registrations of an empty group: when the first one's wait is over, whoever came of it goes on."""
    bench = ExtensionBench()
    bench.add_members("A", wait_ms=1_000)
    bench.add_members("B", wait_ms=3_600_000)
    joining = member(bench, "A", rebalance_ms=3_600_000).join()
    bench.advance(900)
    assert joining.parked

    if end == "cancelled":
        bench.cancel("A")
    bench.advance(100 + 2 * DELAY_MS)

    assert joining.code is NONE


def test_an_announced_member_waits_for_those_announced_with_it_also_if_a_place_is_open() -> None:
    """Else it would be counted as one who is still to come, and the others would wait until their time is over."""
    bench = ExtensionBench()
    _, follower, standby = pair_and_standby(bench)
    bench.add_members("A", "B", wait_ms=600_000)
    follower.leave()

    first = member(bench, "A")
    first.join()
    standby.heartbeat()
    standby.join()
    assert standby.sync().reply.assignment == follower.assignment
    second = member(bench, "B")
    second.join()

    assert not bench.extensions().expected, "both have come"
    assert {first.id, second.id} <= set(bench.extensions().waiting)


def test_many_ids_in_one_request_take_no_longer_than_there_are() -> None:
    """A request of a few megabytes must not stop the broker for minutes."""
    bench = ExtensionBench(checked=False)
    ids = [f"member-{number}" for number in range(150_000)]

    began = time.process_time()
    refused = bench.add_members(*ids).reply
    accepted = bench.add_members(*ids[:10_000]).reply

    assert time.process_time() - began < 10
    assert refused.error_code == INVALID_REQUEST and not refused.results
    assert sum(result.error_code == NONE for result in accepted.results) == 10_000


def test_joins_of_an_announced_member_in_a_loop_leave_no_timers_behind() -> None:
    bench = ExtensionBench(checked=False)
    bench.add_members("A", "B")
    consumer = member(bench, "A", rebalance_ms=600_000)
    consumer.join()
    joins = [bench.join(instance="A", protocols=("range",), metadata=subscription("t")) for _ in range(10_000)]

    assert joins[-1].parked
    assert bench.queued_timers < 5_000


# -- standbys ----------------------------------------------------------------------------------------------------------


def test_a_target_that_is_lowered_counts_open_places() -> None:
    bench = ExtensionBench()
    leader, follower, standby = pair_and_standby(bench)
    follower.leave()
    assert bench.extensions().open_places == 1

    bench.configure(target_size=1)
    standby.join()

    assert bench.extensions().open_places == 0
    assert len(bench.group().roster) == 1
    assert leader.heartbeat() is IN_PROGRESS, "what was in the place is shared out"


def test_a_standby_that_changes_its_topics_is_called_no_longer() -> None:
    """Its heartbeats would tell it to join for as long as the place is open; and nobody else is there to take it."""
    bench = ExtensionBench()
    leader, follower, standby = pair_and_standby(bench)
    follower.leave()
    assert standby.heartbeat() is IN_PROGRESS

    standby.metadata = subscription("other")
    standby.join()

    assert bench.extensions().open_places == 0
    assert leader.heartbeat() is IN_PROGRESS, "nobody can take the place: the others share what was in it"


def test_members_whose_registration_ended_are_called_to_the_place_that_is_open() -> None:
    bench = ExtensionBench()
    _, follower, standby = pair_and_standby(bench)
    bench.add_members("A", "B", wait_ms=SESSION_MS // 2)
    announced = member(bench, "A")
    seated(announced)
    follower.leave()
    assert announced.heartbeat() is NONE

    bench.advance(SESSION_MS // 2)
    assert bench.extensions().open_places == 1
    standby.leave()

    assert announced.heartbeat() is IN_PROGRESS
    announced.join()
    assert announced.sync().reply.assignment == follower.assignment


@pytest.mark.parametrize("end", ["expires", "is cancelled", "is complete"])
def test_members_whose_registration_ended_are_called_also_while_another_standby_is(end: str) -> None:
    """The one that was called first may be slow; then the place waited for it alone."""
    # given an open place for which a standby is called, and a member that waits for another one
    bench = ExtensionBench()
    _, follower, _ = pair_and_standby(bench)
    bench.add_members("A", "B", wait_ms=SESSION_MS // 2)
    announced = member(bench, "A")
    seated(announced)
    follower.leave()
    assert announced.heartbeat() is NONE

    # when it waits for nobody any more
    if end == "expires":
        bench.advance(SESSION_MS // 2)
    elif end == "is cancelled":
        bench.cancel()
    else:
        seated(member(bench, "B"))
    assert bench.extensions().open_places == 1

    # then it may have the place
    assert announced.heartbeat() is IN_PROGRESS
    announced.join()
    assert announced.sync().reply.assignment == follower.assignment


# -- cooperative hand-over ---------------------------------------------------------------------------------------------


def test_a_static_member_that_restarts_while_it_hands_over_does_not_orphan_a_partition() -> None:
    """KIP-429: it was to give p up and to join again; its new process owns nothing and would not."""
    bench = ExtensionBench()
    giver = member(bench, "G", 0, metadata=owning(), rebalance_ms=10 * REBALANCE_MS)
    taker = member(bench, "T", metadata=owning(), rebalance_ms=10 * REBALANCE_MS)
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
    assert bench.extensions().settled is False, "partition 1 is on its way"

    giver.restarted(metadata=owning()).join()

    assert bench.state() == "PreparingRebalance"


def test_a_claim_to_what_another_has_does_not_make_a_restart_a_rebalance() -> None:
    """kafka-python claims partitions that it has lost. Nobody waits for it to give them up."""
    bench = Bench()
    owner = worker(bench, "owner", 0, 1)
    claims = worker(bench, "claims", 2, metadata=reads("t", owns=[1, 2], generation=0))
    stable(owner, claims)
    before = rebalances(bench)

    assert not claims.restarted().join().parked

    assert rebalances(bench) == before


def test_a_newcomers_heartbeat_in_another_generation_is_illegal_as_in_kafka() -> None:
    """Only one that waited and has heard of no generation yet is told to join; found by random runs beside Kafka."""
    bench = Bench()
    stable(worker(bench, "there", 0))
    newcomer = worker(bench, None)
    assert newcomer.join().parked

    newcomer.generation = 7

    assert newcomer.heartbeat() is ErrorCode.ILLEGAL_GENERATION
