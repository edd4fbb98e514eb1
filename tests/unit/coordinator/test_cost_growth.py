"""How cost grows with a group: bytecode instructions of the coordinator, which are the same on any machine.

A request of one member must cost the same in a group of any size. What concerns all members may cost as much for each
of them in a large group as in a small one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import holdfast.coordinator
from holdfast.coordinator.runtime.timers import Timer, Timers
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import GROUP, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer

SMALL: Final = 100
LARGE: Final = 2_000
TOLERANCE: Final = 1.1
HEARTBEAT_INSTRUCTIONS: Final = 250
"""With effects for each heartbeat there were 299."""
COORDINATOR: Final = str(Path(holdfast.coordinator.__file__).parent)


def instructions(action: Callable[[], object]) -> int:
    """How many instructions of the coordinator's modules the action takes."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(COORDINATOR):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def joining(size: int) -> tuple[CoordinatorHarness, list[Consumer]]:
    """Given: this many static members whose joins are awaited."""
    harness = CoordinatorHarness(delay_ms=3_000, checked=False)
    members = [Consumer(harness, instance=f"i{number}", rebalance_ms=600_000) for number in range(size)]
    for member in members:
        member.assignment = encode_assignment(Assignment([TopicPartitions("t", [int((member.instance or "")[1:])])]))
        member.join()
    return harness, members


def joined(size: int) -> tuple[CoordinatorHarness, list[Consumer], Consumer]:
    """Given: a generation of this many static members, and its leader."""
    harness, members = joining(size)
    harness.advance(7_000)
    for member in members:
        member.take()
    return harness, members, next(member for member in members if member.leads)


def synced(size: int) -> tuple[CoordinatorHarness, list[Consumer]]:
    """Given: a stable group of this many static members."""
    harness, members, leader = joined(size)
    leader.sync(*members)
    for member in members:
        member.sync()
    assert harness.state() == "Stable"
    return harness, members


# -- one member's request ----------------------------------------------------------------------------------------------


def join_of_a_new_member(size: int) -> int:
    harness, _ = joining(size)
    return instructions(lambda: harness.join(instance="one more", rebalance_ms=600_000))


def join_of_a_member_that_restarts_in_the_join_phase(size: int) -> int:
    _, members = joining(size)
    return instructions(members[7].restarted().join)


def sync_of_a_follower(size: int) -> int:
    harness, members, leader = joined(size)
    follower = next(member for member in members if member is not leader)
    cost = instructions(follower.sync)
    assert harness.state() == "CompletingRebalance"
    return cost


def sync_in_a_stable_group(size: int) -> int:
    _, members = synced(size)
    return instructions(members[7].sync)


def heartbeat(size: int) -> int:
    _, members = synced(size)
    return instructions(members[7].heartbeat)


def heartbeat_that_starts_over_the_session(size: int) -> int:
    """The clock has moved, so the session ends later than its entry in the heap says."""
    harness, members = synced(size)
    harness.now += SESSION_MS // 2
    return instructions(members[7].heartbeat)


def commit(size: int) -> int:
    _, members = synced(size)
    return instructions(lambda: members[7].commit(5))


@pytest.mark.parametrize(
    "request_of_one_member",
    [
        join_of_a_new_member,
        join_of_a_member_that_restarts_in_the_join_phase,
        sync_of_a_follower,
        sync_in_a_stable_group,
        heartbeat,
        heartbeat_that_starts_over_the_session,
        commit,
    ],
)
def test_a_request_of_one_member_costs_the_same_in_a_group_of_any_size(
    request_of_one_member: Callable[[int], int],
) -> None:
    small, large = request_of_one_member(SMALL), request_of_one_member(LARGE)
    assert small > 50, "instructions are counted"
    assert large <= TOLERANCE * small


def test_a_heartbeat_that_changes_nothing_makes_no_effects() -> None:
    harness, members = synced(SMALL)
    member, coordinator = members[7], harness.coordinator
    request = HeartbeatRequest(GROUP, member.generation, member.id, member.instance)
    answers = []

    cost = instructions(lambda: answers.append(coordinator.answer_heartbeat(request, member.client, harness.now)))

    assert answers == [ErrorCode.NONE]
    assert coordinator.take_effects(harness.now) is None
    assert 50 < cost < HEARTBEAT_INSTRUCTIONS


# -- what concerns all members -----------------------------------------------------------------------------------------


def the_generation(size: int) -> int:
    harness, members = joining(size)
    cost = instructions(lambda: harness.advance(7_000))
    assert not members[0].joining or not members[0].joining.is_pending
    return cost


def the_assignment(size: int) -> int:
    harness, members, leader = joined(size)
    for member in members:
        if member is not leader:
            member.sync()
    cost = instructions(lambda: leader.sync(*members))
    assert harness.state() == "Stable"
    return cost


@pytest.mark.parametrize("work", [the_generation, the_assignment])
def test_what_concerns_all_members_grows_no_faster_than_their_number(work: Callable[[int], int]) -> None:
    assert work(LARGE) / LARGE <= TOLERANCE * work(SMALL) / SMALL


# -- timers ------------------------------------------------------------------------------------------------------------


def test_heartbeats_queue_each_session_once_in_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given: many members. When: each sends ten heartbeats in a session, for three sessions.
    Then: each session was looked at three times and no session was queued for a heartbeat."""
    harness, members = synced(LARGE)
    pushed: list[Timer] = []
    push = Timers._push

    def counted(timers: Timers, timer: Timer) -> None:
        pushed.append(timer)
        push(timers, timer)

    monkeypatch.setattr(Timers, "_push", counted)
    sessions, queued = 3, harness.queued_timers

    for _ in range(10 * sessions):
        harness.advance(SESSION_MS // 10)
        for member in members:
            assert member.heartbeat() == ErrorCode.NONE

    assert len(pushed) <= sessions * (LARGE + 10)
    assert harness.queued_timers <= queued + 10
    assert harness.state() == "Stable"

    harness.advance(2 * SESSION_MS)
    assert harness.group_or_none() is None or harness.state() == "Empty", "silent members do expire"
