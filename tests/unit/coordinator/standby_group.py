"""A group with two active members and two standbys, for the tests of standbys and of takeovers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import is_standby, rebalances, worker
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, stable


@dataclass
class StandbyGroup:
    """Two members with an assignment, the first leading, and two standbys."""

    harness: CoordinatorHarness
    leader: Consumer
    follower: Consumer
    standby: Consumer
    other: Consumer
    began: int


def world(*, static: bool = True, version: int = 9) -> StandbyGroup:
    harness = CoordinatorHarness()
    assert harness.configure(target_size=2).reply is ErrorCode.NONE
    names = ["L", "F", "S", "O"] if static else [None] * 4
    leader, follower, standby, other = (
        worker(harness, name, number, version=version) for number, name in enumerate(names)
    )
    stable(leader, follower)
    assert leader.leads
    is_standby(standby, other)
    return StandbyGroup(harness, leader, follower, standby, other, rebalances(harness))


def no_rebalance(world: StandbyGroup) -> bool:
    return rebalances(world.harness) == world.began and world.harness.group().state is STABLE
