"""The four steps at which a coordinator may fail, as the Client-side Assignment Proposal numbers them, on the wire.

Each by a kill at the point itself; then it is said to the next broker what the members would say, and the answers are
exact: who must rejoin, who only syncs, and what nobody notices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.group_broker import GroupBroker, KillAt
from tests.broker.group_members import (
    WireMember,
    described,
    form,
    partitions,
    wait_for_ledger,
    wait_for_state,
    wait_until_loaded,
)
from tests.broker.wire_client import WireClient

NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 0, 22, 25, 27
GROUP = "readers"

BEFORE_THE_LAST_JOIN = KillAt(event="rebalance started")
GENERATION_RECORD = "GenerationKey"
SYNC_RECORD = "GroupMetadataKey"
NOT_STORED = ["before write", "half written"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    with GroupBroker(tmp_path / "data") as started:
        with WireClient(started.address) as client:
            client.create_topic("orders", partitions=2)
        yield started


@pytest.fixture
def next_broker(tmp_path: Path) -> Iterator[Callable[[], GroupBroker]]:
    started: list[GroupBroker] = []

    def start() -> GroupBroker:
        started.append(GroupBroker(tmp_path / "data").__enter__())
        wait_until_loaded(WireClient(started[-1].address))
        return started[-1]

    yield start
    for one in started:
        one.__exit__(None, None, None)


def second_member_joins(broker: GroupBroker, kill: KillAt) -> tuple[WireMember, WireMember]:
    """A stable generation 1 of one member. The broker is killed while the second and the first join for the next."""
    leader = WireMember(broker.address, GROUP)
    leader.join()
    assert leader.sync({leader.member_id: partitions(0, 1)}).error_code == NONE
    follower = WireMember(broker.address, GROUP)
    follower.take_id()
    broker.arm(kill)
    follower.send_join()
    if kill is not BEFORE_THE_LAST_JOIN:
        wait_for_state(WireClient(broker.address), GROUP, "PreparingRebalance")
        leader.send_join()
    broker.wait_until_killed()
    return leader, follower


def both_have_joined(broker: GroupBroker) -> tuple[WireMember, WireMember]:
    leader, follower = WireMember(broker.address, GROUP), WireMember(broker.address, GROUP)
    form(leader, follower)
    wait_for_ledger(leader)
    return leader, follower


def rebalance_events(client: WireClient) -> int:
    events = [json.loads(record.value or b"{}") for record in client.fetch_all("__group_ledger")]
    return sum(event["kind"] == "rebalance started" for event in events)


# -- 1 -----------------------------------------------------------------------------------------------------------------


def test_1_killed_before_the_last_join_the_stored_generation_stays_valid(
    broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = second_member_joins(broker, BEFORE_THE_LAST_JOIN)
    later = next_broker()
    leader, follower = leader.again(later.address), follower.again(later.address)

    # then the member of the stored generation goes on in it
    assert leader.heartbeat() == NONE
    assert leader.commit(7) == NONE

    # and the id that was handed out and never used is gone: its owner asks for another
    follower.send_join()
    assert follower.joined().error_code == UNKNOWN_MEMBER_ID
    follower.member_id = ""
    follower.take_id()
    follower.send_join()
    wait_for_state(leader, GROUP, "PreparingRebalance")
    assert leader.heartbeat() == REBALANCE_IN_PROGRESS
    leader.send_join()
    assert [leader.joined().generation_id, follower.joined().generation_id] == [2, 2]


@pytest.mark.parametrize("point", NOT_STORED)
def test_1_killed_before_the_generation_is_stored_all_send_their_joins_again(
    point: str, broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = second_member_joins(broker, KillAt(record=GENERATION_RECORD, point=point))
    later = next_broker()
    leader, follower = leader.again(later.address), follower.again(later.address)

    # the generation that nobody heard of does not exist
    assert described(leader, GROUP).group_state == "Stable"
    assert [member.member_id for member in described(leader, GROUP).members] == [leader.member_id]

    follower.member_id = ""
    follower.take_id()
    follower.send_join()
    leader.send_join()
    assert [leader.joined().generation_id, follower.joined().generation_id] == [2, 2]


# -- 2 -----------------------------------------------------------------------------------------------------------------


def test_2_killed_after_the_generation_is_stored_its_leader_can_complete_it(
    broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = second_member_joins(broker, KillAt(record=GENERATION_RECORD, point="written"))
    later = next_broker()
    leader, follower = leader.again(later.address), follower.again(later.address)
    leader.generation = follower.generation = 2
    assert described(leader, GROUP).group_state == "CompletingRebalance"

    # when they go on as if the answers to their joins had reached them
    follower.send_sync()
    plan = {leader.member_id: partitions(0), follower.member_id: partitions(1)}
    answers = [leader.sync(plan), follower.synced()]

    assert [(answer.error_code, answer.assignment) for answer in answers] == [(0, partitions(0)), (0, partitions(1))]
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]


@pytest.mark.parametrize("who", ["leader", "follower", "somebody new"])
def test_2_any_join_after_it_aborts_the_sync_and_makes_all_rejoin(
    who: str, broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = second_member_joins(broker, KillAt(record=GENERATION_RECORD, point="written"))
    later = next_broker()
    leader, follower = leader.again(later.address), follower.again(later.address)
    leader.generation = follower.generation = 2
    waiting, joining = (follower, leader) if who == "leader" else (leader, follower)
    if who == "leader":
        waiting.send_sync()  # parked: only the leader's completes the generation
    if who == "somebody new":
        joining = WireMember(later.address, GROUP)
        joining.take_id()

    # when one joins
    joining.send_join()
    wait_for_state(WireClient(later.address), GROUP, "PreparingRebalance")

    # then the sync of the others is aborted, whether it waits already or comes now
    if who != "leader":
        waiting.send_sync({leader.member_id: partitions(0), follower.member_id: partitions(1)})
    assert waiting.synced().error_code == REBALANCE_IN_PROGRESS
    assert waiting.heartbeat() == REBALANCE_IN_PROGRESS

    # and all meet in the next generation
    for other in {leader, follower} - {joining}:
        other.send_join()
    everybody = {leader, follower, joining}
    assert {member.joined().generation_id for member in everybody} == {3}


# -- 3 -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", NOT_STORED)
def test_3_killed_before_the_assignment_is_stored_all_only_sync_again(
    point: str, broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = both_have_joined(broker)
    plan = {leader.member_id: partitions(0), follower.member_id: partitions(1)}
    broker.arm(KillAt(record=SYNC_RECORD, point=point))
    follower.send_sync()
    leader.send_sync(plan)
    broker.wait_until_killed()
    later = next_broker()
    before = rebalance_events(WireClient(later.address))
    leader, follower = leader.again(later.address), follower.again(later.address)

    # when they sync again, nobody joins
    follower.send_sync()
    answers = [leader.sync(plan), follower.synced()]

    # then it is the same generation, completed
    assert [(answer.error_code, answer.assignment) for answer in answers] == [(0, partitions(0)), (0, partitions(1))]
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]
    assert rebalance_events(WireClient(later.address)) == before


# -- 4 -----------------------------------------------------------------------------------------------------------------


def test_4_killed_after_the_assignment_is_stored_each_gets_its_part_at_once(
    broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    leader, follower = both_have_joined(broker)
    plan = {leader.member_id: partitions(0), follower.member_id: partitions(1)}
    broker.arm(KillAt(record=SYNC_RECORD, point="written"))
    follower.send_sync()
    leader.send_sync(plan)
    broker.wait_until_killed()
    later = next_broker()
    before = rebalance_events(WireClient(later.address))
    leader, follower = leader.again(later.address), follower.again(later.address)

    # when the follower syncs, without the leader
    answer = follower.sync()
    assert (answer.error_code, answer.assignment) == (0, partitions(1))

    # and the leader changes its mind, too late
    answer = leader.sync({leader.member_id: partitions(0, 1)})
    assert (answer.error_code, answer.assignment) == (0, partitions(0))

    # then nobody has noticed anything
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]
    assert rebalance_events(WireClient(later.address)) == before


def test_4_a_rejoining_follower_gets_the_same_generation_a_leader_makes_all_rejoin(
    broker: GroupBroker, next_broker: Callable[[], GroupBroker]
) -> None:
    """What clients do that join again instead of syncing again."""
    leader, follower = both_have_joined(broker)
    plan = {leader.member_id: partitions(0), follower.member_id: partitions(1)}
    broker.arm(KillAt(record=SYNC_RECORD, point="written"))
    leader.send_sync(plan)
    broker.wait_until_killed()
    later = next_broker()
    leader, follower = leader.again(later.address), follower.again(later.address)
    generation = leader.generation

    assert follower.join().generation_id == generation
    assert follower.sync().assignment == partitions(1)
    assert leader.heartbeat() == NONE

    # the control: the leader's join does have an effect
    leader.send_join()
    wait_for_state(follower, GROUP, "PreparingRebalance")
    assert follower.heartbeat() == REBALANCE_IN_PROGRESS
    follower.send_join()
    assert {leader.joined().generation_id, follower.joined().generation_id} == {generation + 1}
    assert follower.generation == generation + 1
    assert follower.heartbeat() == NONE
    follower.generation = generation
    assert follower.heartbeat() == ILLEGAL_GENERATION
