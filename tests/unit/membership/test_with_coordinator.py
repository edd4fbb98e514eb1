"""Members and coordinator together, under one clock that a test moves: what holds for the two halves as a whole.

At every moment: in one generation a partition has one owner and one committer, and nothing is committed that was not
processed. In the end, when everybody behaves: the group settles, every partition has an owner, no record was skipped.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from tests.unit.membership.virtual_cluster import VirtualCluster

TOPICS = {"t": 5, "u": 2}
STRATEGIES: list[list[type[Assignor]]] = [
    [RangeAssignor],
    [RoundRobinAssignor],
    [StickyAssignor],
    [CooperativeStickyAssignor],
]


def settled(world: VirtualCluster, within_ms: int = 60_000) -> None:
    for _ in range(within_ms // 1_000):
        world.run(1_000)
        if world.is_settled:
            return
    phases = [(one.name, one.member.phase, sorted(one.owned.partitions)) for one in world.actors]
    raise AssertionError(f"not settled within {within_ms} ms: {phases}")


def nothing_was_skipped(world: VirtualCluster) -> None:
    for where, offset in world.harness.fetch().items():
        assert world.processed[where] >= set(range(offset)), f"{where} was committed at {offset} with gaps"


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one[0].__name__)
def test_three_members_divide_the_topics_and_a_fourth_joins_and_leaves(strategy: list[type[Assignor]]) -> None:
    world = VirtualCluster(dict(TOPICS))
    for name in "abc":
        world.start(name, [one() for one in strategy])
    settled(world)
    fourth = world.start("d", [one() for one in strategy])
    settled(world)
    assert fourth.owned.partitions
    world.kill(fourth)
    settled(world)
    nothing_was_skipped(world)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one[0].__name__)
def test_a_static_member_that_restarts_in_time_costs_no_generation(strategy: list[type[Assignor]]) -> None:
    world = VirtualCluster(dict(TOPICS))
    for name in "abc":
        world.start(name, [one() for one in strategy], instance_id=name)
    settled(world)
    generation = world.harness.generation()
    for name in "abc":
        before = next(one for one in world.actors if one.name == name)
        held = set(before.owned.partitions)
        world.kill(before)
        world.run(2_000)
        after = world.start(name, [one() for one in strategy], instance_id=name)
        settled(world)
        assert after.owned.partitions == held
    assert world.harness.generation() == generation


def test_control_a_dynamic_member_that_restarts_costs_generations() -> None:
    world = VirtualCluster(dict(TOPICS))
    for name in "abc":
        world.start(name, [RangeAssignor()])
    settled(world)
    generation = world.harness.generation()
    world.kill(world.actors[0])
    world.start("a", [RangeAssignor()])
    settled(world)
    assert world.harness.generation() > generation


def test_kafka_7026_stale_claims_of_a_paused_consumer_give_no_partition_two_owners() -> None:
    world = VirtualCluster({"t": 6})
    for name in "abc":
        world.start(name, [StickyAssignor()])
    settled(world)
    paused = world.actors[2]
    paused.paused_until = world.harness.now + 15_000
    world.run(12_000)
    assert sorted(where for one in world.actors[:2] for where in one.owned.partitions) == [("t", n) for n in range(6)]
    world.run(5_000)
    settled(world)
    assert [len(one.owned.partitions) for one in world.actors] == [2, 2, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from("abcde"), st.booleans()),
        st.tuples(st.just("kill"), st.integers(0, 4), st.none()),
        st.tuples(st.just("pause"), st.integers(0, 4), st.sampled_from([1_000, 8_000, 30_000])),
        st.tuples(st.just("broker"), st.none(), st.none()),
        st.tuples(st.just("time"), st.sampled_from([100, 1_000, 7_000]), st.none()),
        st.tuples(st.just("duplicate"), st.integers(0, 4), st.none()),
    ),
    max_size=14,
)


def do(world: VirtualCluster, strategy: list[type[Assignor]], step: tuple[str, Any, Any]) -> None:
    kind, what, how = step
    actors = [one for one in world.actors if not one.is_closed]
    match kind:
        case "start":
            if len(actors) < 5:
                taken = {one.name for one in actors}
                if what not in taken:
                    world.start(what, [one() for one in strategy], instance_id=what if how else None)
        case "kill" if actors:
            world.kill(actors[what % len(actors)])
        case "pause" if actors:
            actors[what % len(actors)].paused_until = world.harness.now + how
        case "duplicate" if actors:
            twin = actors[what % len(actors)]
            if twin.instance_id is not None:
                world.start(twin.name, [one() for one in strategy], instance_id=twin.instance_id)
        case "broker":
            world.restart_broker()
        case "time":
            world.run(what)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STRATEGIES), STEPS, st.sampled_from([0, 300, 1_500]), st.integers(0, 2**32))
def test_whatever_happens_the_group_settles_and_nothing_was_skipped(
    strategy: list[type[Assignor]], steps: list[tuple[str, Any, Any]], longest_lag_ms: int, seed: int
) -> None:
    chance = random.Random(seed)
    world = VirtualCluster(dict(TOPICS), lag_ms=lambda: chance.randint(0, longest_lag_ms))
    world.start("first", [one() for one in strategy])
    for step in steps:
        do(world, strategy, step)
        world.run(300)
    for one in world.actors:
        one.paused_until = 0
    alive = [one for one in world.actors if not one.is_closed]
    if not alive:
        world.start("last", [one() for one in strategy])
    # A duplicate of an instance may still be fenced; after that any member that is left settles.
    world.run(10_000)
    if any(not one.is_closed for one in world.actors):
        settled(world)
    nothing_was_skipped(world)
