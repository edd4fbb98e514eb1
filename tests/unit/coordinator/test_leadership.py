"""Who is asked to skip the assignment (KIP-814), and what becomes of a leader that is not: docs/decisions/0017."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import REBALANCE, connection, is_standby, partitions, rebalances, worker
from tests.unit.coordinator.harness import DELAY_MS, JAVA, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, stable

FRANZ_GO, UNNAMED = "kgo", ""


def led_pair(harness: CoordinatorHarness) -> tuple[Consumer, Consumer]:
    harness.topics["t"] = 2
    leader, follower = worker(harness, "L", 0), worker(harness, "F", 1)
    stable(leader, follower)
    assert leader.leads
    return leader, follower


@pytest.mark.parametrize("software", [JAVA, "holdfast"])
def test_a_restarted_leader_that_honours_it_skips_the_assignment(software: str) -> None:
    harness = CoordinatorHarness()
    leader, _ = led_pair(harness)

    again = leader.restarted(client=connection(software))
    answer = again.join().reply

    assert (answer.leader, answer.skip_assignment, len(answer.members)) == (again.id, True, 2)


@pytest.mark.parametrize("software", [FRANZ_GO, UNNAMED, "somebody"])
def test_any_other_restarted_leader_is_a_follower_and_the_coordinator_watches(software: str) -> None:
    # given
    harness = CoordinatorHarness()
    leader, follower = led_pair(harness)
    began = rebalances(harness)

    # when
    again = leader.restarted(client=connection(software))
    answer = again.join().reply

    # then it follows and has its assignment
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader.id, False, [])
    assert partitions(again.sync()) == {0}
    assert rebalances(harness) == began

    # and nobody misses what is added to the topic
    harness.topic_grew("t", 3)
    assert follower.heartbeat() is REBALANCE
    assert harness.events_of(EventKind.REBALANCE_STARTED)[-1].cause.code is CauseCode.TOPIC_GREW


def test_control_a_leader_that_skips_watches_itself() -> None:
    harness = CoordinatorHarness()
    leader, follower = led_pair(harness)
    again = leader.restarted(client=connection(JAVA))
    again.join()
    again.sync()

    harness.topic_grew("t", 3)

    assert follower.heartbeat() is ErrorCode.NONE


def test_a_leader_of_another_type_gets_skip_assignment_whatever_its_software() -> None:
    """Nobody could watch for it: only subscriptions of type consumer name topics."""
    harness = CoordinatorHarness()
    first = harness.join(instance="L", protocol_type="connect")
    harness.advance(DELAY_MS)
    harness.sync(first.member_id, 1, {first.member_id: b"share"}, instance="L", protocol_type="connect")

    again = harness.join(instance="L", protocol_type="connect", client=Client("cid", "/127.0.0.1", software=FRANZ_GO))

    assert again.reply.skip_assignment


@pytest.mark.parametrize(("software", "leads"), [(JAVA, True), (FRANZ_GO, False), (UNNAMED, False)])
def test_a_standby_that_takes_over_from_a_leader(software: str, leads: bool) -> None:
    # given
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    leader, follower = led_pair(harness)
    standby = worker(harness, None, 0)
    standby.client = connection(software)
    is_standby(standby)
    began = rebalances(harness)

    # when
    leader.leave()
    assert standby.heartbeat() is REBALANCE
    answer = standby.join().reply

    # then
    assert (standby.leads, answer.skip_assignment) == (leads, leads)
    assert partitions(standby.sync()) == {0}
    assert follower.heartbeat() is ErrorCode.NONE
    assert rebalances(harness) == began

    # and a topic that grows is somebody's business: the leader's, or else ours
    harness.topic_grew("t", 3)
    assert (follower.heartbeat() is REBALANCE) is not leads


def test_a_leader_asked_to_rejoin_after_a_reload_is_treated_as_at_any_join() -> None:
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    leader, _ = led_pair(harness)
    standby = worker(harness, None, 0)
    standby.client = connection(FRANZ_GO)
    is_standby(standby)
    leader.leave()
    standby.join()
    standby.sync()

    harness.restart()
    assert standby.heartbeat() is REBALANCE
    answer = standby.join().reply

    assert (standby.leads, answer.skip_assignment) == (False, False)
    assert harness.group().leader_not_notified
