"""What a group costs, however large it is, and what clients can make it cost that mean no good."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions.join_groups import MAX_MEMBERS
from holdfast.coordinator.runtime.effects import Effects
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupMetadataKey, GroupMetadataValue
from tests.unit.coordinator.extension_members import connection, entry, worker
from tests.unit.coordinator.harness import SESSION_MS, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer, dynamic, lone_member, stable

SMALL, LARGE = 50, 5_000


def parked_group(size: int, *, static: bool) -> CoordinatorHarness:
    """Given: a group of this size that waits for one more member, all others parked."""
    harness = CoordinatorHarness(delay_ms=3_000, checked=False)
    for number in range(size):
        harness.join(instance=f"i{number}" if static else None, version=9 if static else 3, rebalance_ms=600_000)
    return harness


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
        harness = parked_group(size, static=False)
        costs[size] = seconds_each(lambda harness=harness: harness.join(version=3, rebalance_ms=600_000))  # type: ignore[misc]

    assert costs[LARGE] < 3 * costs[SMALL]


def test_a_static_restart_in_the_join_phase_costs_the_same_in_a_group_of_any_size() -> None:
    costs = {}
    for size in (SMALL, LARGE):
        harness = parked_group(size, static=True)
        costs[size] = seconds_each(lambda harness=harness: harness.join(instance="i7", rebalance_ms=600_000))  # type: ignore[misc]

    assert costs[LARGE] < 3 * costs[SMALL]


def test_a_heartbeat_costs_the_same_in_a_group_of_any_size() -> None:
    costs = {}
    for size in (SMALL, LARGE):
        harness = parked_group(size, static=True)
        harness.advance(7_000)
        member = next(iter(harness.group().members))
        generation = harness.generation()
        assert harness.heartbeat(member.id, generation) == ErrorCode.NONE
        costs[size] = seconds_each(
            lambda harness=harness, id=member.id, generation=generation: harness.heartbeat(id, generation)  # type: ignore[misc]
        )

    assert costs[LARGE] < 3 * costs[SMALL]


def test_heartbeats_leave_the_timers_as_they_are() -> None:
    harness = CoordinatorHarness(checked=False)
    member = lone_member(harness)
    before = harness.queued_timers

    for _ in range(20_000):
        harness.advance(1)
        member.heartbeat()

    assert harness.queued_timers <= before + 1
    assert harness.state() == "Stable"


def test_a_client_that_asks_for_ids_in_a_loop_is_bounded() -> None:
    harness = CoordinatorHarness(checked=False)
    first = harness.join(session_ms=1_800_000)

    for _ in range(10_000):
        harness.join(session_ms=1_800_000)

    assert len(harness.group().members.pending_member_ids) <= 1_000
    assert harness.queued_timers < 5_000
    assert harness.join(first.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_joins_and_leaves_in_a_loop_is_bounded() -> None:
    harness = CoordinatorHarness(checked=False, delay_ms=0)
    for _ in range(5_000):
        member = Consumer(harness, version=3)
        member.join()
        assert member.leave() == ErrorCode.NONE

    assert harness.queued_timers < 5_000
    assert harness.state() == "Empty"


@pytest.mark.parametrize(
    "refused",
    [
        lambda harness, name: harness.join(group=name, protocols=()),
        lambda harness, name: harness.join(group=name, protocol_type=""),
        lambda harness, name: harness.commit({("t", 0): harness.offset(1, "x" * 5_000)}, group=name),
        lambda harness, name: harness.fetch(name),
        lambda harness, name: harness.leave(("x", None), group=name),
        lambda harness, name: harness.delete_offsets(("t", 0), group=name),
    ],
    ids=["no protocols", "no protocol type", "long metadata", "fetch", "leave", "offset delete"],
)
def test_refused_requests_leave_no_groups_behind(refused: Callable[[CoordinatorHarness, str], object]) -> None:
    harness = CoordinatorHarness(checked=False)

    for number in range(100):
        refused(harness, f"group-{number}")

    assert list(harness.groups()) == []


def test_groups_that_only_ever_had_ids_handed_out_are_swept_away() -> None:
    harness = CoordinatorHarness(checked=False)
    for number in range(100):
        harness.join(group=f"group-{number}", session_ms=1_000)
    harness.sweep()
    assert len(list(harness.groups())) == 100

    harness.advance(1_000)
    harness.sweep()

    assert list(harness.groups()) == []


def longest(character: str) -> str:
    """As long as a string of a request can be."""
    return character * (32_767 // len(character.encode()))


@pytest.mark.parametrize(
    "join",
    [
        lambda harness, name: harness.join(instance=name),
        lambda harness, name: harness.join(version=3, protocols=[name]),
        lambda harness, name: harness.join(version=3, protocol_type=name),
        lambda harness, name: harness.join(version=3, group=name),
        lambda harness, name: harness.join(version=3, client=Client(name, "/127.0.0.1")),
    ],
    ids=["instance id", "protocol", "protocol type", "group id", "client id"],
)
@pytest.mark.parametrize("character", ["x", "€", "🦀"])
def test_the_longest_names_that_a_request_can_carry_can_be_stored(
    join: Callable[[CoordinatorHarness, str], Handle], character: str
) -> None:
    harness = CoordinatorHarness()

    handle = join(harness, longest(character))
    harness.advance(200)  # here the harness encodes the record of the generation

    assert handle.code == ErrorCode.NONE
    harness.restart()


@pytest.mark.timeout(20)
def test_static_members_with_a_rebalance_timeout_of_zero_do_not_stop_the_clock() -> None:
    harness = CoordinatorHarness()
    static, moving = Consumer(harness, instance="S", session_ms=60_000), dynamic(harness)
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
        harness.now += 50
        harness.coordinator.fire_timers(harness.now)

    assert harness.state() == "PreparingRebalance"
    assert static.restarted().join().code == ErrorCode.NONE


def test_loading_a_partition_looks_only_at_its_own_groups() -> None:
    def cost(groups: int) -> float:
        harness = CoordinatorHarness(checked=False)
        for number in range(groups):
            key, value = GroupMetadataKey(f"group-{number}"), GroupMetadataValue("consumer", 1, None, None, 0, [])
            harness.coordinator.replay([(key, value)])
        began = time.process_time()
        for partition in range(50):
            harness.coordinator.load_finished(partition, harness.now)
        return (time.process_time() - began) / groups

    # Each group is woken once. Hashing every name for each of the fifty partitions costs some fifty times as much.
    assert min(cost(2_000) for _ in range(3)) < 50e-6


def test_a_join_phase_without_joins_does_not_restart_every_millisecond() -> None:
    """Given: one static member, with no rebalance timeout and a session of half an hour, that is away while its group
    rebalances. When: the half hour passes. Then: it did not cost a timer for every millisecond of it."""
    harness = CoordinatorHarness(delay_ms=0)
    away = harness.join(instance="A", rebalance_ms=0, session_ms=1_800_000)
    harness.sync(away.member_id, away.generation, {away.member_id: b"share"}, instance="A")
    harness.join(version=3, rebalance_ms=0)  # and never syncs
    harness.advance(2)
    fired = 0
    fire = harness.coordinator.fire_timers

    def counted(now_ms: int, limit: int | None = None) -> Effects:
        nonlocal fired
        fired += 1
        return fire(now_ms, limit)

    harness.coordinator.fire_timers = counted  # type: ignore[method-assign]
    assert harness.state() == "PreparingRebalance"

    harness.advance(1_900_000)

    assert 100 < fired < 2_000
    assert harness.group_or_none() is None or harness.state() == "Empty"


def test_many_members_in_one_request_do_not_stop_the_others() -> None:
    """Each entry that became a standby, and each session that ended meanwhile, was a look at all the others. (There are
    ten times as many as a broker takes.)"""
    # given a request with many members, all but one of them standbys at once, and that one keeps them waiting
    harness = CoordinatorHarness(checked=False)
    harness.configure(target_size=1)
    one = worker(harness, "1", 0, session_ms=100 * SESSION_MS, rebalance_ms=100 * SESSION_MS)
    stable(one)
    standbys = [entry(worker(harness, f"s-{number}")) for number in range(10 * MAX_MEMBERS)]
    odd = entry(worker(harness, "odd", protocols=("roundrobin",)))

    # when they join, and their sessions end while they wait
    began = time.process_time()
    handles = harness.join_all(*standbys, odd, client=connection())
    harness.advance(SESSION_MS)
    took = time.process_time() - began

    # then nobody has been expelled, and it took a small part of what it takes to look at each of them for each of them
    assert took < 5
    assert all(handle.is_pending for handle in handles)
    assert not harness.events_of(EventKind.SESSION_EXPIRED)
    assert len(harness.group().members.standbys) == 10 * MAX_MEMBERS
