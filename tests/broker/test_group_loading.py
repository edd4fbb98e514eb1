"""The listener is open while groups are loaded: what each request gets then, and that afterwards all is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.apis.offset_delete import OffsetDeleteRequest
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from holdfast.wire.compression import DEFAULT_MAX_OUTPUT
from holdfast.wire.group_records import partition_for
from tests.broker.group_broker import FEW_PARTITIONS, Gate, GroupBroker
from tests.broker.group_members import (
    WireMember,
    assign_evenly,
    committed,
    delete_group,
    described,
    form,
    partitions,
    wait_for_state,
    wait_until_loaded,
)
from tests.broker.wire_client import WireClient, batch
from tests.support.eventually import eventually

NONE, LOADING, REBALANCE_IN_PROGRESS = 0, 14, 27
PARTITION_COUNT = int(FEW_PARTITIONS["offsets.topic.num.partitions"])


def group_in(partition: int, name: str) -> str:
    """A group id whose records are in this partition of the group log."""
    found = (f"{name}-{number}" for number in range(100))
    return next(group for group in found if partition_for(group, PARTITION_COUNT) == partition)


EARLY, LATE = group_in(0, "early"), group_in(1, "late")


@pytest.fixture
def members(tmp_path: Path) -> list[WireMember]:
    """A stable group of two in the first partition of the group log, and one in the second, each with an offset."""
    formed: list[WireMember] = []
    with GroupBroker(tmp_path / "data") as broker:
        with WireClient(broker.address) as client:
            client.create_topic("orders", partitions=2)
        for group in (EARLY, LATE):
            two = [WireMember(broker.address, group, name) for name in ("a", "b")]
            form(*two)
            assign_evenly(*two)
            assert two[0].commit(7) == NONE
            formed += two
    return formed


@pytest.fixture
def loading(tmp_path: Path, members: list[WireMember]) -> Iterator[GroupBroker]:
    """The first partition of the group log is read, the second is not until the gate opens."""
    with GroupBroker(tmp_path / "data", gate=Gate(1)) as broker:
        members[:] = [member.again(broker.address) for member in members]
        early = members[0]
        eventually(lambda: described(early, EARLY).error_code == NONE, f"{EARLY} is loaded")
        yield broker


def test_requests_to_a_group_that_is_being_loaded(loading: GroupBroker, members: list[WireMember]) -> None:
    late = members[2]

    # what members say: the answers are those that clients can handle
    assert late.heartbeat() == NONE
    assert late.sync().error_code == REBALANCE_IN_PROGRESS
    late.send_join()
    refused = late.joined()
    assert (refused.error_code, refused.generation_id, refused.member_id) == (LOADING, -1, late.member_id)
    assert late.commit(8) == LOADING
    assert late.leave().error_code == LOADING

    # what others ask
    assert described(late, LATE).error_code == LOADING
    assert late.ask(DeleteGroupsRequest([LATE]), 2).results[0].error_code == LOADING
    assert late.ask(OffsetDeleteRequest(LATE), 0).error_code == LOADING
    assert late.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(LATE)]), 9).groups[0].error_code == LOADING
    assert late.ask(OffsetFetchRequest(LATE, None), 5).error_code == LOADING
    topic = OffsetFetchRequestTopic("orders", [0])
    old = late.ask(OffsetFetchRequest(LATE, [topic]), 1)
    assert old.topics[0].partitions[0].error_code == LOADING

    # a group that never was may be in there, too
    with WireMember(loading.address, group_in(1, "new"), "a") as new:
        new.send_join()
        assert new.joined().error_code == LOADING


def test_what_does_not_depend_on_it_is_served(loading: GroupBroker, members: list[WireMember]) -> None:
    early = members[0]

    found = early.ask(FindCoordinatorRequest(coordinator_keys=[EARLY, LATE]), 4).coordinators
    assert [entry.error_code for entry in found] == [NONE, NONE]
    listed = early.ask(ListGroupsRequest(), 4)
    assert (listed.error_code, [group.group_id for group in listed.groups]) == (LOADING, [EARLY])
    assert early.heartbeat() == NONE
    assert early.sync().assignment == partitions(0)
    assert early.commit(9) == NONE
    assert committed(early, EARLY) == {("orders", 0): 9}
    assert early.produce("orders", batch(b"as ever")).error_code == NONE


def test_when_it_is_loaded_all_is_there(loading: GroupBroker, members: list[WireMember]) -> None:
    loading.open_gate()
    wait_until_loaded(members[0])

    assert [member.heartbeat() for member in members] == [NONE] * 4
    assert [member.sync().assignment for member in members] == [partitions(0), partitions(1)] * 2
    assert [committed(members[0], group) for group in (EARLY, LATE)] == [{("orders", 0): 7}] * 2
    listed = members[0].ask(ListGroupsRequest(), 4).groups
    assert {group.group_id: group.group_state for group in listed} == {EARLY: "Stable", LATE: "Stable"}


def test_sessions_begin_when_a_group_is_loaded(loading: GroupBroker, members: list[WireMember]) -> None:
    """Any member that is silent from then on is removed, no earlier: loading may take longer than a session."""
    late = members[2]
    loading.open_gate()
    wait_until_loaded(late)

    assert late.heartbeat() == NONE
    assert [member.member_id for member in described(late, LATE).members] == [m.member_id for m in members[2:]]


def test_a_new_group_is_above_a_deleted_one_also_while_the_rest_is_loading(tmp_path: Path) -> None:
    """The highest generation of deleted groups may be in a part of the group log that is read last."""
    first, second = group_in(0, "first"), group_in(1, "second")
    with GroupBroker(tmp_path / "data") as broker, WireClient(broker.address) as client:
        # given two groups, of which one gets farther, and is deleted first
        reported = {}
        for group, generations in ((first, 2), (second, 5)):
            with WireMember(broker.address, group, "a") as member:
                for _ in range(generations):
                    member.join()
                    assert member.sync({member.member_id: partitions(0)}).error_code == NONE
                member.leave()
                wait_for_state(client, group, "Empty")
                reported[group] = member.generation
        assert reported[first] < reported[second]
        assert [delete_group(client, group) for group in (second, first)] == [NONE, NONE]

    # when the first is joined again before the other's part is read
    with GroupBroker(tmp_path / "data", gate=Gate(1)) as broker, WireMember(broker.address, first) as member:
        eventually(lambda: described(member, first).error_code == NONE, "the first part is read")

        assert member.join().generation_id > reported[first]


def test_a_group_with_a_huge_assignment_costs_no_other_group_its_offsets(tmp_path: Path) -> None:
    """Whatever the group log takes must be read again, or everything behind it is lost with it."""
    victim, hog = group_in(0, "victim"), group_in(0, "hog")
    with GroupBroker(tmp_path / "data") as broker, WireMember(broker.address, victim) as simple:
        # given
        simple.create_topic("orders")
        assert simple.commit(100) == NONE
        with WireMember(broker.address, hog, "a") as member:
            member.join()
            assert member.sync({member.member_id: bytes(DEFAULT_MAX_OUTPUT)}).error_code == NONE
        assert simple.commit(5000) == NONE

    # when
    with GroupBroker(tmp_path / "data") as broker, WireClient(broker.address) as client:
        wait_until_loaded(client)

        # then
        assert committed(client, victim) == {("orders", 0): 5000}
        assert [member.group_instance_id for member in described(client, hog).members] == ["a"]
