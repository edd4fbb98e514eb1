"""Who is told to skip the assignment (KIP-814), and what becomes of a leader that is not: docs/decisions/0017."""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import DELAY_MS, JAVA, Bench
from tests.unit.coordinator.extension_scene import REBALANCE, connection, partitions, rebalances, seated, worker
from tests.unit.coordinator.scene import Consumer, stable

FRANZ_GO, UNNAMED = "kgo", ""


def led_pair(bench: Bench) -> tuple[Consumer, Consumer]:
    bench.topics["t"] = 2
    leader, follower = worker(bench, "L", 0), worker(bench, "F", 1)
    stable(leader, follower)
    assert leader.leads
    return leader, follower


@pytest.mark.parametrize("software", [JAVA, "holdfast"])
def test_a_restarted_leader_that_honours_it_skips_the_assignment(software: str) -> None:
    bench = Bench()
    leader, _ = led_pair(bench)

    again = leader.restarted(client=connection(software))
    answer = again.join().reply

    assert (answer.leader, answer.skip_assignment, len(answer.members)) == (again.id, True, 2)


@pytest.mark.parametrize("software", [FRANZ_GO, UNNAMED, "somebody"])
def test_any_other_restarted_leader_is_a_follower_and_the_coordinator_watches(software: str) -> None:
    # given
    bench = Bench()
    leader, follower = led_pair(bench)
    began = rebalances(bench)

    # when
    again = leader.restarted(client=connection(software))
    answer = again.join().reply

    # then it follows and has its share
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader.id, False, [])
    assert partitions(again.sync()) == {0}
    assert rebalances(bench) == began

    # and nobody misses what is added to the topic
    bench.topic_grew("t", 3)
    assert follower.heartbeat() is REBALANCE
    assert "does not know that it leads" in bench.told(EventKind.REBALANCE_STARTED)[-1].cause


def test_control_a_leader_that_skips_watches_itself() -> None:
    bench = Bench()
    leader, follower = led_pair(bench)
    again = leader.restarted(client=connection(JAVA))
    again.join()
    again.sync()

    bench.topic_grew("t", 3)

    assert follower.heartbeat() is ErrorCode.NONE


def test_a_leader_of_another_type_is_told_whatever_its_software() -> None:
    """Nobody could watch for it: only subscriptions of type consumer name topics."""
    bench = Bench()
    first = bench.join(instance="L", protocol_type="connect")
    bench.advance(DELAY_MS)
    bench.sync(first.member_id, 1, {first.member_id: b"share"}, instance="L", protocol_type="connect")

    again = bench.join(instance="L", protocol_type="connect", client=Client("cid", "/127.0.0.1", software=FRANZ_GO))

    assert again.reply.skip_assignment


@pytest.mark.parametrize(("software", "leads"), [(JAVA, True), (FRANZ_GO, False), (UNNAMED, False)])
def test_a_standby_in_the_place_of_a_leader(software: str, leads: bool) -> None:
    # given
    bench = Bench()
    bench.configure(target_size=2)
    leader, follower = led_pair(bench)
    standby = worker(bench, None, 0)
    standby.client = connection(software)
    seated(standby)
    began = rebalances(bench)

    # when
    leader.leave()
    assert standby.heartbeat() is REBALANCE
    answer = standby.join().reply

    # then
    assert (standby.leads, answer.skip_assignment) == (leads, leads)
    assert partitions(standby.sync()) == {0}
    assert follower.heartbeat() is ErrorCode.NONE
    assert rebalances(bench) == began

    # and a topic that grows is somebody's business: the leader's, or else ours
    bench.topic_grew("t", 3)
    assert (follower.heartbeat() is REBALANCE) is not leads


def test_a_leader_that_is_called_again_after_a_reload_is_told_as_at_any_join() -> None:
    bench = Bench()
    bench.configure(target_size=2)
    leader, _ = led_pair(bench)
    standby = worker(bench, None, 0)
    standby.client = connection(FRANZ_GO)
    seated(standby)
    leader.leave()
    standby.join()
    standby.sync()

    bench.restart()
    assert standby.heartbeat() is REBALANCE
    answer = standby.join().reply

    assert (standby.leads, answer.skip_assignment) == (False, False)
    assert bench.group().leader_unaware
