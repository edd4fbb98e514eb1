"""What a group costs, however large it is, and what clients can make it cost that mean no good."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.coordinator.batch_join import MOST_MEMBERS
from holdfast.coordinator.effects import Effects
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupMetadataKey, GroupMetadataValue
from tests.unit.coordinator.bench import SESSION_MS, Bench, Handle
from tests.unit.coordinator.extension_scene import connection, entry, worker
from tests.unit.coordinator.scene import Consumer, dynamic, lone_member, stable

SMALL, LARGE = 50, 5_000


def parked_group(size: int, *, static: bool) -> Bench:
    """Given: a group of this size that waits for one more member, all others parked."""
    bench = Bench(delay_ms=3_000, checked=False)
    for number in range(size):
        bench.join(instance=f"i{number}" if static else None, version=9 if static else 3, rebalance_ms=600_000)
    return bench


def seconds_each(action: Callable[[], object], repeat: int = 300) -> float:
    """The best of several rounds: what the work costs when nothing else runs."""
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeat // 5):
            action()
        rounds.append(time.process_time() - began)
    return min(rounds) / (repeat // 5)


def test_a_join_of_a_new_member_costs_the_same_in_a_group_of_any_size() -> None:
    costs = {}
    for size in (SMALL, LARGE):
        bench = parked_group(size, static=False)
        costs[size] = seconds_each(lambda bench=bench: bench.join(version=3, rebalance_ms=600_000))  # type: ignore[misc]

    assert costs[LARGE] < 3 * costs[SMALL]


def test_a_static_member_that_restarts_during_the_join_phase_costs_the_same_in_a_group_of_any_size() -> None:
    costs = {}
    for size in (SMALL, LARGE):
        bench = parked_group(size, static=True)
        costs[size] = seconds_each(lambda bench=bench: bench.join(instance="i7", rebalance_ms=600_000))  # type: ignore[misc]

    assert costs[LARGE] < 3 * costs[SMALL]


def test_a_heartbeat_costs_the_same_in_a_group_of_any_size() -> None:
    costs = {}
    for size in (SMALL, LARGE):
        bench = parked_group(size, static=True)
        bench.advance(7_000)
        member = next(iter(bench.group().roster))
        generation = bench.generation()
        assert bench.heartbeat(member.id, generation) == ErrorCode.NONE
        costs[size] = seconds_each(
            lambda bench=bench, id=member.id, generation=generation: bench.heartbeat(id, generation)  # type: ignore[misc]
        )

    assert costs[LARGE] < 3 * costs[SMALL]


def test_heartbeats_leave_the_timers_as_they_are() -> None:
    bench = Bench(checked=False)
    member = lone_member(bench)
    before = bench.queued_timers

    for _ in range(20_000):
        bench.advance(1)
        member.heartbeat()

    assert bench.queued_timers <= before + 1
    assert bench.state() == "Stable"


def test_a_client_that_asks_for_ids_in_a_loop_is_bounded() -> None:
    bench = Bench(checked=False)
    first = bench.join(session_ms=1_800_000)

    for _ in range(10_000):
        bench.join(session_ms=1_800_000)

    assert len(bench.group().roster.pending) <= 1_000
    assert bench.queued_timers < 5_000
    assert bench.join(first.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_joins_and_leaves_in_a_loop_is_bounded() -> None:
    bench = Bench(checked=False, delay_ms=0)
    for _ in range(5_000):
        member = Consumer(bench, version=3)
        member.join()
        assert member.leave() == ErrorCode.NONE

    assert bench.queued_timers < 5_000
    assert bench.state() == "Empty"


@pytest.mark.parametrize(
    "refused",
    [
        lambda bench, name: bench.join(group=name, protocols=()),
        lambda bench, name: bench.join(group=name, protocol_type=""),
        lambda bench, name: bench.commit({("t", 0): bench.offset(1, "x" * 5_000)}, group=name),
        lambda bench, name: bench.fetch(name),
        lambda bench, name: bench.leave(("x", None), group=name),
        lambda bench, name: bench.delete_offsets(("t", 0), group=name),
    ],
    ids=["no protocols", "no protocol type", "long metadata", "fetch", "leave", "offset delete"],
)
def test_refused_requests_leave_no_groups_behind(refused: Callable[[Bench, str], object]) -> None:
    bench = Bench(checked=False)

    for number in range(100):
        refused(bench, f"group-{number}")

    assert list(bench.groups()) == []


def test_groups_that_only_ever_had_ids_handed_out_are_swept_away() -> None:
    bench = Bench(checked=False)
    for number in range(100):
        bench.join(group=f"group-{number}", session_ms=1_000)
    bench.sweep()
    assert len(list(bench.groups())) == 100

    bench.advance(1_000)
    bench.sweep()

    assert list(bench.groups()) == []


def longest(character: str) -> str:
    """As long as a string of a request can be."""
    return character * (32_767 // len(character.encode()))


@pytest.mark.parametrize(
    "join",
    [
        lambda bench, name: bench.join(instance=name),
        lambda bench, name: bench.join(version=3, protocols=[name]),
        lambda bench, name: bench.join(version=3, protocol_type=name),
        lambda bench, name: bench.join(version=3, group=name),
        lambda bench, name: bench.join(version=3, client=Client(name, "/127.0.0.1")),
    ],
    ids=["instance id", "protocol", "protocol type", "group id", "client id"],
)
@pytest.mark.parametrize("character", ["x", "€", "🦀"])
def test_the_longest_names_that_a_request_can_carry_can_be_stored(
    join: Callable[[Bench, str], Handle], character: str
) -> None:
    bench = Bench()

    handle = join(bench, longest(character))
    bench.advance(200)  # here the bench encodes the record of the generation

    assert handle.code == ErrorCode.NONE
    bench.restart()


@pytest.mark.timeout(20)
def test_static_members_with_a_rebalance_timeout_of_zero_do_not_stop_the_clock() -> None:
    bench = Bench()
    static, moving = Consumer(bench, instance="S", session_ms=60_000), dynamic(bench)
    stable(static, moving)
    static.rebalance_ms = 0
    if static.leads:
        static.join()
        moving.join()
        for member in (static, moving):
            member.take()
    else:
        static.join()
    moving.leave()

    for _ in range(10):
        bench.now += 50
        bench.coordinator.fire_timers(bench.now)

    assert bench.state() == "PreparingRebalance"
    assert static.restarted().join().code == ErrorCode.NONE


def test_loading_a_partition_looks_only_at_its_own_groups() -> None:
    def cost(groups: int) -> float:
        bench = Bench(checked=False)
        for number in range(groups):
            key, value = GroupMetadataKey(f"group-{number}"), GroupMetadataValue("consumer", 1, None, None, 0, [])
            bench.coordinator.load_record(key, value)
        began = time.process_time()
        for partition in range(50):
            bench.coordinator.finish_loading(partition, bench.now)
        return (time.process_time() - began) / groups

    # Each group is woken once. Hashing every name for each of the fifty partitions costs some fifty times as much.
    assert min(cost(2_000) for _ in range(3)) < 50e-6


def test_a_join_phase_that_nobody_comes_to_does_not_begin_anew_with_every_millisecond() -> None:
    """Given: one static member, with no rebalance time-out and a session of half an hour, that is away while its group
    rebalances. When: the half hour passes. Then: it did not cost a timer for every millisecond of it."""
    bench = Bench(delay_ms=0)
    away = bench.join(instance="A", rebalance_ms=0, session_ms=1_800_000)
    bench.sync(away.member_id, away.generation, {away.member_id: b"share"}, instance="A")
    bench.join(version=3, rebalance_ms=0)  # and never syncs
    bench.advance(2)
    fired = 0
    fire = bench.coordinator.fire_timers

    def counted(now_ms: int, most: int | None = None) -> Effects:
        nonlocal fired
        fired += 1
        return fire(now_ms, most)

    bench.coordinator.fire_timers = counted  # type: ignore[method-assign]
    assert bench.state() == "PreparingRebalance"

    bench.advance(1_900_000)

    assert 100 < fired < 2_000
    assert bench.group_or_none() is None or bench.state() == "Empty"


def test_many_members_in_one_request_do_not_stop_the_others() -> None:
    """Each entry that was seated, and each session that ended meanwhile, was a look at all the others. (There are ten
    times as many as a broker takes.)"""
    # given a request with many members, all but one of them seated at once, and that one keeps them waiting
    bench = Bench(checked=False)
    bench.configure(target_size=1)
    one = worker(bench, "1", 0, session_ms=100 * SESSION_MS, rebalance_ms=100 * SESSION_MS)
    stable(one)
    standbys = [entry(worker(bench, f"s-{number}")) for number in range(10 * MOST_MEMBERS)]
    odd = entry(worker(bench, "odd", protocols=("roundrobin",)))

    # when they join, and their sessions end while they wait
    began = time.process_time()
    handles = bench.join_all(*standbys, odd, client=connection())
    bench.advance(SESSION_MS)
    took = time.process_time() - began

    # then nobody has been expelled, and it took a small part of what it takes to look at each of them for each of them
    assert took < 5
    assert all(handle.parked for handle in handles)
    assert not bench.told(EventKind.SESSION_EXPIRED)
    assert len(bench.group().roster.waiting) == 10 * MOST_MEMBERS
