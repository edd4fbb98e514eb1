"""Standbys that hang up when they are asked to join, and join over another connection, as kafka-go does."""

from __future__ import annotations

from holdfast.coordinator.intake import RECONNECT_MS
from holdfast.coordinator.states import STABLE
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.extension_scene import (
    LONG_MS,
    REBALANCE,
    connection,
    partitions,
    rebalances,
    seated,
    worker,
)
from tests.unit.coordinator.scene import Consumer, keep_alive, stable

KAFKA_GO = 2
"""The version of JoinGroup that it speaks; it has no static members."""
WITHOUT_OWNED = b"\x00\x01" + encode_subscription(Subscription(["t"]), 0)[2:]
"""Its subscription: version 1, and nothing where the owned partitions belong."""


def kafka_go(bench: Bench, *owns: int) -> Consumer:
    settings = {"version": KAFKA_GO, "metadata": WITHOUT_OWNED, "session_ms": LONG_MS, "rebalance_ms": LONG_MS}
    return worker(bench, None, *owns, **settings)


def group_of(bench: Bench, *, target: int) -> tuple[list[Consumer], Consumer]:
    """As many members as the group wants, and a standby."""
    bench.configure(target_size=target)
    members = [kafka_go(bench, number) for number in range(target)]
    stable(*members)
    standby = kafka_go(bench, 9)
    seated(standby)
    return members, standby


def hangs_up(consumer: Consumer) -> None:
    consumer.bench.hang_up(consumer.client)
    consumer.client = connection()


def test_the_join_phase_waits_for_a_standby_that_joins_over_another_connection() -> None:
    # given a standby that may have a share, and hangs up when it hears of it
    bench = Bench()
    (member,), standby = group_of(bench, target=1)
    began = rebalances(bench)
    bench.configure(target_size=2)
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)

    # when the other member joins before it
    assert member.join().parked
    bench.advance(RECONNECT_MS - 1)

    # then both are in the generation, after one rebalance
    standby.join()
    member.take()
    assert [consumer.generation for consumer in (member, standby)] == [2, 2]
    member.sync(standby)
    assert partitions(standby.sync()) == {9}
    keep_alive(10_000, member, standby)
    assert rebalances(bench) == began + 1


def test_a_standby_that_was_asked_and_does_not_come_back_is_not_waited_for_any_longer() -> None:
    bench = Bench()
    (member,), standby = group_of(bench, target=1)
    bench.configure(target_size=2)
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)

    joining = member.join()
    bench.advance(RECONNECT_MS - 1)
    assert joining.parked
    bench.advance(1)

    assert joining.generation == 2
    assert bench.extensions().waiting == [standby.id]


def test_control_nobody_waits_for_a_standby_that_hangs_up_unasked() -> None:
    bench = Bench()
    (member,), standby = group_of(bench, target=1)
    bench.configure(target_size=2)
    hangs_up(standby)

    assert member.join().generation == 2
    assert bench.extensions().waiting == [standby.id]


def test_a_standby_that_is_back_while_the_others_still_join_takes_part() -> None:
    # given a rebalance that waits for a member, and a standby that hung up before it heard of it
    bench = Bench()
    members, standby = group_of(bench, target=2)
    bench.configure(target_size=3)
    hangs_up(standby)
    members[0].join()

    # when it joins again, then it is not answered with the generation that ends
    assert standby.join().parked
    members[1].join()
    for consumer in (*members, standby):
        consumer.take()
    assert {consumer.generation for consumer in (*members, standby)} == {2}


def test_without_room_a_standby_is_answered_at_once_also_while_the_others_join() -> None:
    """The control: it goes on waiting, in the generation that there is."""
    bench = Bench()
    members, standby = group_of(bench, target=2)
    members[0].join()

    assert standby.join().generation == 1
    assert bench.extensions().waiting == [standby.id]


def test_it_takes_the_place_of_one_that_went_although_its_subscription_lacks_the_owned_partitions() -> None:
    bench = Bench()
    (leader, follower), standby = group_of(bench, target=2)
    began = rebalances(bench)

    follower.leave()
    assert standby.heartbeat() is REBALANCE
    hangs_up(standby)
    assert standby.join().generation == 1

    assert partitions(standby.sync()) == {1}
    assert leader.heartbeat() is ErrorCode.NONE
    assert (rebalances(bench), bench.group().state) == (began, STABLE)
