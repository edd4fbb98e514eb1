"""Members and coordinator together, beyond Kafka: topics grow, assignors fail, and all that may happen to a group
happens meanwhile. In one generation a partition has one owner, and no member's epoch ever goes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.assignors import Assignor, CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription
from holdfast.coordinator.events.group_event import EventKind
from holdfast.membership import Membership
from holdfast.membership.sync_phase import MAX_ASSIGNOR_FAILURES
from tests.unit.membership.test_with_coordinator import STRATEGIES, do, nothing_was_skipped, settled
from tests.unit.membership.virtual_cluster import SESSION_MS, VirtualCluster


def group_of_three(assignor: Callable[[], Assignor], *, extensions: bool = True) -> VirtualCluster:
    world = VirtualCluster({"t": 6}, extensions=extensions)
    for name in "abc":
        world.start(name, [assignor()])
    settled(world)
    for one in world.actors:
        one.revocations = 0
    return world


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor, StickyAssignor])
def test_a_topic_that_grows_costs_no_rebalance(assignor: Callable[[], Assignor]) -> None:
    world = group_of_three(assignor)
    generation, epochs = world.harness.generation(), [one.epoch for one in world.actors]

    world.grow("t", 6)
    settled(world)

    assert world.harness.generation() == generation
    assert [len(one.owned.partitions) for one in world.actors] == [4, 4, 4]
    assert [one.epoch for one in world.actors] == [epoch + 1 for epoch in epochs]
    assert len(world.harness.events_of(EventKind.RESYNCED)) == 1
    nothing_was_skipped(world)


def test_in_a_cooperative_group_no_member_revokes_partitions_for_it() -> None:
    world = group_of_three(CooperativeStickyAssignor)

    world.grow("t", 6)
    settled(world)

    assert [one.revocations for one in world.actors] == [0, 0, 0]


@pytest.mark.parametrize(
    ("assignor", "extensions"), [(RangeAssignor, True), (CooperativeStickyAssignor, False)], ids=["range", "as Kafka"]
)
def test_control_where_it_cannot_be_it_costs_one(assignor: Callable[[], Assignor], extensions: bool) -> None:
    world = group_of_three(assignor, extensions=extensions)
    generation = world.harness.generation()

    world.grow("t", 6)
    settled(world)

    assert world.harness.generation() == generation + 1
    assert world.harness.events_of(EventKind.RESYNCED) == []


class Failing(RoundRobinAssignor):
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        raise KeyError("a mistake")


def test_when_the_leader_cannot_assign_another_does_and_all_are_assigned() -> None:
    world = VirtualCluster({"t": 6}, extensions=True)
    for name, assignor in (("a", Failing()), ("b", RoundRobinAssignor()), ("c", RoundRobinAssignor())):
        world.start(name, [assignor])
    world.run(400)
    world.actors[0].paused_until = world.harness.now + 3_000  # the others wait for what it decides

    settled(world)

    (failed,) = world.harness.events_of(EventKind.ASSIGNMENT_FAILED)
    assert "KeyError" in (failed.cause.detail or "")
    assert world.reported_failures == 2  # the others
    assert [len(one.owned.partitions) for one in world.actors] == [2, 2, 2]


def test_control_without_extensions_such_a_leader_leaves_the_group() -> None:
    world = VirtualCluster({"t": 6})
    for name, assignor in (("a", Failing()), ("b", RoundRobinAssignor()), ("c", RoundRobinAssignor())):
        world.start(name, [assignor])

    settled(world)

    assert [one.is_closed for one in world.actors] == [True, False, False]


def wait_of_the_second(*, reports_the_last: bool) -> int:
    """Two static members whose assignors fail: how long after the first has given up the second goes on, in ms."""
    world = VirtualCluster({"t": 6}, extensions=True)
    members = [world.start(name, [Failing()], f"instance-{name}") for name in "ab"]
    if not reports_the_last:
        for one in members:
            one.member.report_assignment_failure = silent_at_the_last(one.member)  # type: ignore[method-assign, assignment]
    gone_at: dict[str, int] = {}
    for _ in range(1_000):
        world.run(100)
        gone_at |= {one.name: world.harness.now for one in members if one.is_closed and one.name not in gone_at}
        if len(gone_at) == 2:
            assert world.harness.events_of(EventKind.ASSIGNMENT_FAILED)
            return max(gone_at.values()) - min(gone_at.values())
    raise AssertionError(f"one of them never gave up: {gone_at}")


def silent_at_the_last(member: Membership) -> Callable[[int, int, str, int], None]:
    """What a member does that gives up without a report, as on Apache Kafka."""
    reports, count = member.report_assignment_failure, itertools.count(1)

    def report(generation: int, fault: int, message: str, now: int) -> None:
        if next(count) < MAX_ASSIGNOR_FAILURES:
            reports(generation, fault, message, now)
        else:
            member.assignment_failed(generation, message)

    return report


def test_a_static_leader_that_gives_up_does_not_let_the_other_wait_for_its_session() -> None:
    assert wait_of_the_second(reports_the_last=True) < SESSION_MS / 2


def test_control_one_that_gives_up_in_silence_does() -> None:
    assert wait_of_the_second(reports_the_last=False) >= SESSION_MS


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from("abcde"), st.booleans()),
        st.tuples(st.just("kill"), st.integers(0, 4), st.none()),
        st.tuples(st.just("pause"), st.integers(0, 4), st.sampled_from([1_000, 8_000, 30_000])),
        st.tuples(st.just("broker"), st.none(), st.none()),
        st.tuples(st.just("time"), st.sampled_from([100, 1_000, 7_000]), st.none()),
        st.tuples(st.just("grow"), st.sampled_from("tu"), st.integers(1, 4)),
        st.tuples(st.just("grow"), st.sampled_from("tu"), st.integers(1, 4)),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STRATEGIES), STEPS)
def test_whatever_happens_what_has_come_has_an_owner_in_the_end(
    strategy: list[type[Assignor]], steps: list[tuple[str, Any, Any]]
) -> None:
    world = VirtualCluster({"t": 5, "u": 2}, extensions=True)
    world.start("first", [one() for one in strategy])
    for step in steps:
        if step[0] == "grow":
            world.grow(step[1], step[2])
        else:
            do(world, strategy, step)
        world.run(300)
    for one in world.actors:
        one.paused_until = 0
    if all(one.is_closed for one in world.actors):
        world.start("last", [one() for one in strategy])
    settled(world)
    nothing_was_skipped(world)
