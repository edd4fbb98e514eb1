"""Standbys that hang up when they are asked to join, and join over another connection, as kafka-go does."""

from __future__ import annotations

from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.coordinator.extensions.admission import STANDBY_RECONNECT_MS
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    LONG_MS,
    REBALANCE,
    connection,
    is_standby,
    partitions,
    rebalances,
    worker,
)
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, keep_alive, stable

KAFKA_GO = 2
"""The version of JoinGroup that it speaks; it has no static members."""
WITHOUT_OWNED = b"\x00\x01" + encode_subscription(Subscription(["t"]), 0)[2:]
"""Its subscription: version 1, and nothing where the owned partitions belong."""


def kafka_go(harness: CoordinatorHarness, *owns: int) -> Consumer:
    settings = {"version": KAFKA_GO, "metadata": WITHOUT_OWNED, "session_ms": LONG_MS, "rebalance_ms": LONG_MS}
    return worker(harness, None, *owns, **settings)


def group_of(harness: CoordinatorHarness, *, target: int) -> tuple[list[Consumer], Consumer]:
    """As many members as the group wants, and a standby."""
    harness.configure(target_size=target)
    members = [kafka_go(harness, number) for number in range(target)]
    stable(*members)
    standby = kafka_go(harness, 9)
    is_standby(standby)
    return members, standby


def hangs_up(consumer: Consumer) -> None:
    consumer.harness.disconnect(consumer.client)
    consumer.client = connection()


def test_the_join_phase_waits_for_a_standby_that_joins_over_another_connection() -> None:
    # given a standby that may have an assignment, and hangs up when it hears of it
    harness = CoordinatorHarness()
    (member,), standby = group_of(harness, target=1)
    began = rebalances(harness)
    harness.configure(target_size=2)
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)

    # when the other member joins before it
    assert member.join().is_pending
    harness.advance(STANDBY_RECONNECT_MS - 1)

    # then both are in the generation, after one rebalance
    standby.join()
    member.take()
    assert [consumer.generation for consumer in (member, standby)] == [2, 2]
    member.sync(standby)
    assert partitions(standby.sync()) == {9}
    keep_alive(10_000, member, standby)
    assert rebalances(harness) == began + 1


def test_a_standby_that_does_not_rejoin_in_time_is_no_longer_waited_for() -> None:
    harness = CoordinatorHarness()
    (member,), standby = group_of(harness, target=1)
    harness.configure(target_size=2)
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)

    joining = member.join()
    harness.advance(STANDBY_RECONNECT_MS - 1)
    assert joining.is_pending
    harness.advance(1)

    assert joining.generation == 2
    assert harness.extensions().standbys == [standby.id]


def test_control_a_standby_that_disconnects_unasked_is_not_waited_for() -> None:
    harness = CoordinatorHarness()
    (member,), standby = group_of(harness, target=1)
    harness.configure(target_size=2)
    hangs_up(standby)

    assert member.join().generation == 2
    assert harness.extensions().standbys == [standby.id]


def test_a_standby_that_is_back_while_the_others_still_join_takes_part() -> None:
    # given a rebalance that waits for a member, and a standby that hung up before it heard of it
    harness = CoordinatorHarness()
    members, standby = group_of(harness, target=2)
    harness.configure(target_size=3)
    hangs_up(standby)
    members[0].join()

    # when it joins again, then it is not answered with the generation that ends
    assert standby.join().is_pending
    members[1].join()
    for consumer in (*members, standby):
        consumer.take()
    assert {consumer.generation for consumer in (*members, standby)} == {2}


def test_without_room_a_standby_is_answered_at_once_also_while_the_others_join() -> None:
    """The control: it goes on waiting, in the current generation."""
    harness = CoordinatorHarness()
    members, standby = group_of(harness, target=2)
    members[0].join()

    assert standby.join().generation == 1
    assert harness.extensions().standbys == [standby.id]


def test_it_fills_a_vacancy_although_its_subscription_lacks_the_owned_partitions() -> None:
    harness = CoordinatorHarness()
    (leader, follower), standby = group_of(harness, target=2)
    began = rebalances(harness)

    follower.leave()
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)
    assert standby.join().generation == 1

    assert partitions(standby.sync()) == {1}
    assert leader.heartbeat() is ErrorCode.NONE
    assert (rebalances(harness), harness.group().state) == (began, STABLE)
