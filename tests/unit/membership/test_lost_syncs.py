"""Client-side Assignment Proposal (Kafka wiki), failure steps 3 and 4: a SyncGroup without a response is sent again.

Joining again instead would make the whole group rejoin.
"""

from __future__ import annotations

import pytest

from holdfast.assignors import RangeAssignor
from holdfast.membership.effects import Channel, JoinComplete, LeaderElected
from holdfast.membership.phases import Phase
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import HEARTBEAT, JOIN_GROUP, MINE, SYNC_GROUP, MemberHarness, joined
from tests.unit.membership.test_with_coordinator import settled
from tests.unit.membership.virtual_cluster import VirtualCluster

GENERATION = 3
ASSIGNMENTS = {MINE: b"mine", "other": b"the other's"}


def syncing(*, leads: bool = False, extensions: bool = False) -> MemberHarness:
    """A member that had partitions, and waits for what it gets in the next generation."""
    harness = MemberHarness(extensions=extensions)
    harness.stable(generation=GENERATION - 1)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    harness.answer(JOIN_GROUP, joined(GENERATION, leader=MINE if leads else "other"))
    if leads:
        harness.event(LeaderElected)
        harness.do("assignment_ready", GENERATION, ASSIGNMENTS, harness.now)
    assert harness.phase is Phase.SYNCING
    return harness


def refind(harness: MemberHarness) -> None:
    harness.pass_time(1_000)
    harness.find_coordinator()


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("channel", [Channel.JOIN, Channel.COORDINATOR])
def test_it_is_sent_again_unchanged_and_no_member_rejoins(channel: Channel, leads: bool) -> None:
    # given a sync and a heartbeat that wait for their answers, each on its own connection
    harness = syncing(leads=leads)
    harness.pass_time(harness.member.settings.heartbeat_interval_ms)
    assert harness.pending(HEARTBEAT) is not None
    first, mark = harness.request(SYNC_GROUP), len(harness.history)

    # when one of the connections breaks
    harness.disconnect(channel)
    refind(harness)

    # then the same SyncGroup goes out once more, with the assignments if there are any
    assert harness.request(SYNC_GROUP) == first
    assert [one.member_id for one in first.assignments] == (list(ASSIGNMENTS) if leads else [])
    assert "JoinGroup" not in harness.sent_since(mark)
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))
    assert harness.event(JoinComplete).generation_id == GENERATION
    assert not harness.events, "nothing was lost"


def test_it_is_sent_again_also_where_no_answer_came_for_a_whole_session() -> None:
    harness = syncing()

    harness.pass_time(harness.member.settings.session_timeout_ms + 1_000)
    harness.find_coordinator()

    assert harness.request(SYNC_GROUP).generation_id == GENERATION


def test_a_coordinator_that_loads_is_asked_again_after_a_back_off() -> None:
    harness = syncing(extensions=True)

    for _ in range(2):
        harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, assignment=b""))
        assert harness.pending(SYNC_GROUP) is None
        harness.pass_time(1_000)

    assert harness.request(SYNC_GROUP).generation_id == GENERATION
    assert harness.pending(JOIN_GROUP) is None


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, MINE), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_control_the_member_rejoins_if_the_coordinator_lost_the_generation(code: ErrorCode, member_id: str) -> None:
    harness = syncing()
    harness.disconnect(Channel.JOIN)
    refind(harness)

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=code, assignment=b""))
    harness.prepare(lost=True)

    assert harness.request(JOIN_GROUP).member_id == member_id


def test_control_where_the_coordinator_moved_the_member_joins() -> None:
    """Apache Kafka stores no generation before its assignment: the next coordinator does not know it."""
    harness = syncing()

    harness.answer(SYNC_GROUP, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, assignment=b""))
    refind(harness)

    assert harness.request(JOIN_GROUP).member_id == MINE
    assert not harness.events, "nothing was lost"


def test_a_rejoin_that_was_wanted_meanwhile_follows_the_sync() -> None:
    harness = syncing()
    harness.do("rejoin", "cached metadata has changed", harness.now)
    harness.disconnect(Channel.JOIN)
    refind(harness)

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"mine"))

    assert harness.event(JoinComplete).generation_id == GENERATION
    harness.prepare()
    assert harness.request(JOIN_GROUP).member_id == MINE


def generations_of_a_kill_at_step_4(*, extensions: bool) -> int:
    """Both members wait for their assignment when the broker is killed, and the next one takes its time to load: how
    many generations more there are in the end."""
    world = VirtualCluster({"t": 4}, extensions=extensions)
    members = [world.start(name, [RangeAssignor()]) for name in "ab"]
    settled(world)
    members[0].member.rejoin("for the test", world.harness.now)
    while any(one.member.phase is not Phase.SYNCING for one in members):
        world.run(100)
    generation = world.harness.generation()

    world.restart_broker(only_load=True)
    world.run(1_000)
    world.harness.finish_loading()
    settled(world)
    return world.harness.generation() - generation


def test_a_broker_that_was_killed_and_loads_does_not_make_the_group_rejoin() -> None:
    assert generations_of_a_kill_at_step_4(extensions=True) == 0


def test_control_the_answer_that_kafkas_clients_expect_while_it_loads_does() -> None:
    assert generations_of_a_kill_at_step_4(extensions=False) == 1
