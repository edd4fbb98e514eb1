"""The client-side assignment document, failure steps 3 and 4: a SyncGroup without an answer is sent again.

Joining again instead would make the whole group rejoin.
"""

from __future__ import annotations

import pytest

from holdfast.assignors import RangeAssignor
from holdfast.membership.effects import Adopt, Lane, Lead
from holdfast.membership.phases import Phase
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import HEARTBEAT, JOIN_GROUP, MINE, SYNC_GROUP, Scene, joined
from tests.unit.membership.test_with_coordinator import settled
from tests.unit.membership.world import World

GENERATION = 3
SHARES = {MINE: b"mine", "other": b"the other's"}


def syncing(*, leads: bool = False, extensions: bool = False) -> Scene:
    """A member that had partitions, and waits for what it gets in the next generation."""
    scene = Scene(extensions=extensions)
    scene.stable(generation=GENERATION - 1)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    scene.answer(JOIN_GROUP, joined(GENERATION, leader=MINE if leads else "other"))
    if leads:
        scene.event(Lead)
        scene.do("decided", GENERATION, SHARES, scene.now)
    assert scene.phase is Phase.SYNCING
    return scene


def refind(scene: Scene) -> None:
    scene.pass_time(1_000)
    scene.find_coordinator()


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("lane", [Lane.JOINS, Lane.SIDE])
def test_it_is_sent_again_as_it_was_and_nobody_rejoins(lane: Lane, leads: bool) -> None:
    # given a sync and a heartbeat that wait for their answers, each on its own connection
    scene = syncing(leads=leads)
    scene.pass_time(scene.member.settings.heartbeat_interval_ms)
    assert scene.waiting(HEARTBEAT) is not None
    first, mark = scene.request(SYNC_GROUP), len(scene.history)

    # when one of the connections breaks
    scene.break_off(lane)
    refind(scene)

    # then the same SyncGroup goes out once more, with the assignments if there are any
    assert scene.request(SYNC_GROUP) == first
    assert [one.member_id for one in first.assignments] == (list(SHARES) if leads else [])
    assert "JoinGroup" not in scene.sent_since(mark)
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))
    assert scene.event(Adopt).generation == GENERATION
    assert not scene.events, "nothing was lost"


def test_it_is_sent_again_also_where_no_answer_came_for_a_whole_session() -> None:
    scene = syncing()

    scene.pass_time(scene.member.settings.session_timeout_ms + 1_000)
    scene.find_coordinator()

    assert scene.request(SYNC_GROUP).generation_id == GENERATION


def test_a_coordinator_that_loads_is_asked_again_after_a_back_off() -> None:
    scene = syncing(extensions=True)

    for _ in range(2):
        scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, assignment=b""))
        assert scene.waiting(SYNC_GROUP) is None
        scene.pass_time(1_000)

    assert scene.request(SYNC_GROUP).generation_id == GENERATION
    assert scene.waiting(JOIN_GROUP) is None


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, MINE), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_control_a_coordinator_that_has_lost_the_generation_refuses_it_and_the_member_joins(
    code: ErrorCode, member_id: str
) -> None:
    scene = syncing()
    scene.break_off(Lane.JOINS)
    refind(scene)

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=code, assignment=b""))
    scene.prepare(lost=True)

    assert scene.request(JOIN_GROUP).member_id == member_id


def test_control_where_the_coordinator_moved_the_member_joins() -> None:
    """Apache Kafka stores no generation before its assignment: the next coordinator does not know it."""
    scene = syncing()

    scene.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, assignment=b""))
    refind(scene)

    assert scene.request(JOIN_GROUP).member_id == MINE
    assert not scene.events, "nothing was lost"


def test_a_rejoin_that_was_wanted_meanwhile_follows_the_sync() -> None:
    scene = syncing()
    scene.do("rejoin", "cached metadata has changed", scene.now)
    scene.break_off(Lane.JOINS)
    refind(scene)

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))

    assert scene.event(Adopt).generation == GENERATION
    scene.prepare()
    assert scene.request(JOIN_GROUP).member_id == MINE


def generations_of_a_kill_at_step_4(*, extensions: bool) -> int:
    """Both members wait for their assignment when the broker is killed, and the next one takes its time to load: how
    many generations more there are in the end."""
    world = World({"t": 4}, extensions=extensions)
    members = [world.start(name, [RangeAssignor()]) for name in "ab"]
    settled(world)
    members[0].member.rejoin("for the test", world.bench.now)
    while any(one.member.phase is not Phase.SYNCING for one in members):
        world.run(100)
    generation = world.bench.generation()

    world.restart_broker(only_load=True)
    world.run(1_000)
    world.bench.finish_loading()
    settled(world)
    return world.bench.generation() - generation


def test_a_broker_that_was_killed_and_loads_does_not_make_the_group_rejoin() -> None:
    assert generations_of_a_kill_at_step_4(extensions=True) == 0


def test_control_the_answer_that_kafkas_clients_expect_while_it_loads_does() -> None:
    assert generations_of_a_kill_at_step_4(extensions=False) == 1
