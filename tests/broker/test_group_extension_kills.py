"""kill -9 wherever something is written while a group does what Kafka's cannot: what was acknowledged holds
afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, GroupExtensions
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from tests.broker import crash_matrix
from tests.broker.crash_matrix import (
    GROUP,
    NONE,
    Acknowledged,
    AcknowledgedGroup,
    Check,
    crash_at_every_point,
    two_members,
)
from tests.broker.group_members import (
    SESSION_MS,
    SYNC_VERSION,
    WireMember,
    batch_entry,
    described,
    partitions,
    wait_for_state,
    wait_until_loaded,
)
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID = 27, 25
GROUP_RESOURCE = 32


class Facts:
    """What was acknowledged beyond what Kafka's groups tell; of what was asked and not answered, both may be true."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Each point is a run of its own."""
        self.expected: list[set[str]] = [set()]
        self.target: list[int] = [0]
        self.epoch = 0
        self.assignments: dict[str, list[bytes]] = {}
        """By instance id."""


def extensions(client: WireClient) -> GroupExtensions:
    asked = DescribeGroupsRequest([GROUP], include_extensions=True)
    found: GroupExtensions | None = client.ask(asked, 6).groups[0].extensions
    return found or GroupExtensions()


def register(client: WireClient, facts: Facts, *instance_ids: str) -> None:
    facts.expected.append(facts.expected[-1] | set(instance_ids))
    answer = client.ask(AddMembersToGroupRequest(GROUP, list(instance_ids)), 0)
    assert [result.error_code for result in answer.results] == [NONE] * len(instance_ids)
    facts.expected = facts.expected[-1:]


def cancel(client: WireClient, facts: Facts, *instance_ids: str) -> None:
    facts.expected.append(facts.expected[-1] - set(instance_ids))
    answer = client.ask(CancelRegistrationRequest(GROUP, list(instance_ids)), 0)
    assert [result.error_code for result in answer.results] == [NONE] * len(instance_ids)
    facts.expected = facts.expected[-1:]


def set_target(client: WireClient, facts: Facts, size: int) -> None:
    facts.target.append(size)
    config = IncrementalAlterableConfig("target.group.size", 0, str(size))
    resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, GROUP, [config])
    (answer,) = client.ask(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert answer.error_code == NONE, answer
    facts.target = facts.target[-1:]


def checked_by(facts: Facts) -> Check:
    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            found = extensions(client)
            assert {one.group_instance_id for one in found.expected} in facts.expected
            assert found.target_size in facts.target
            assert found.assignment_epoch >= facts.epoch, "the epoch went back"
            assert found.generation_id >= reported.generation
            assignments = {
                member.group_instance_id: member.member_assignment
                for member in described(client, GROUP).members
                if member.member_assignment != EMPTY_ASSIGNMENT
            }
            for instance_id, possible in facts.assignments.items():
                assert assignments.get(instance_id) in possible, f"{instance_id}: {assignments.get(instance_id)!r}"

    return check


@pytest.mark.parametrize("flush", ["os", "always"])
def test_members_are_registered_and_cancelled(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(group: AcknowledgedGroup) -> None:
        facts.begin()
        with WireClient(group.address) as client:
            register(client, facts, "c", "d")
            register(client, facts, "e")
            cancel(client, facts, "c", "e")

    points = crash_at_every_point(data_path, two_members, act, flush, check=checked_by(facts))
    assert points >= 9  # three records, each before, half and whole


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_registration_ends_by_itself(flush: str, data_path: Path) -> None:
    """Whether it was over before the kill or not, it is afterwards."""

    def act(group: AcknowledgedGroup) -> None:
        with WireClient(group.address) as client:
            answer = client.ask(AddMembersToGroupRequest(GROUP, ["c"], wait_ms=100), 0)
            assert [result.error_code for result in answer.results] == [NONE]
            eventually(lambda: not extensions(client).expected, "the end of the registration")

    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            eventually(lambda: not extensions(client).expected, "the end of the registration")
        crash_matrix.check(address, reported)

    points = crash_at_every_point(data_path, two_members, act, flush, check=check)
    assert points >= 6  # its record and the one that takes it back


@pytest.mark.parametrize("flush", ["os", "always"])
def test_registered_members_are_admitted(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(group: AcknowledgedGroup) -> None:
        facts.begin()
        with WireClient(group.address) as client, WireMember(group.address, GROUP, "c") as newcomer:
            register(client, facts, "c")
            group.acknowledged.assigned.clear()
            facts.expected.append(set())  # from here on it may be in the generation
            newcomer.send_join()
            eventually(lambda: described(client, GROUP).group_state == "PreparingRebalance", "all are to join")
            for name in ("a", "b"):
                group.member(name).send_join()
            assert newcomer.joined().error_code == NONE
            facts.expected = [set()]
            group.acknowledged.generation = newcomer.generation

    points = crash_at_every_point(data_path, two_members, act, flush, check=checked_by(facts))
    assert points >= 6


def a_standby(group: AcknowledgedGroup) -> None:
    """Given: a and b have the assignments 0 and 1, and s may wait for one of them."""
    two_members(group)
    with WireClient(group.address) as client:
        set_target(client, Facts(), 2)


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_standby_takes_over(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(group: AcknowledgedGroup) -> None:
        facts.begin()
        facts.target = [2]
        facts.assignments = {"a": [partitions(0)], "b": [partitions(1)]}
        with WireMember(group.address, GROUP, "s") as standby:
            assert standby.join().error_code == NONE
            assert standby.sync().assignment == EMPTY_ASSIGNMENT
            group.leave("b")
            assert standby.heartbeat() == REBALANCE_IN_PROGRESS
            before = extensions(standby).assignment_epoch
            # b is still stored as the owner until s is; no response may name both.
            facts.assignments.pop("b")
            standby.send_join()
            assert standby.joined().error_code == NONE
            facts.assignments["s"] = [partitions(1)]
            assert standby.sync().assignment == partitions(1)
            facts.epoch = extensions(standby).assignment_epoch
            assert facts.epoch == before + 1

    points = crash_at_every_point(data_path, a_standby, act, flush, check=checked_by(facts))
    assert points >= 3


@pytest.mark.parametrize("flush", ["os", "always"])
def test_the_target_is_raised_and_lowered(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(group: AcknowledgedGroup) -> None:
        facts.begin()
        facts.target = [2]
        with WireClient(group.address) as client, WireMember(group.address, GROUP, "s") as standby:
            assert standby.join().error_code == NONE
            assert standby.sync().assignment == EMPTY_ASSIGNMENT
            set_target(client, facts, 3)
            # then it is taken in
            members = [group.member("a"), group.member("b"), standby]
            for member in members:
                wait_for_state(client, GROUP, "PreparingRebalance")
                member.send_join()
            assert [member.joined().error_code for member in members] == [NONE] * 3
            group.acknowledged.generation = standby.generation
            plan = {member.member_id: partitions(number) for number, member in enumerate(members)}
            for member in members:
                member.send_sync(plan if member.leader == member.member_id else None)
            assert [member.synced().assignment for member in members] == list(plan.values())
            facts.epoch = extensions(client).assignment_epoch
            set_target(client, facts, 1)
            # then only the first is left
            assert [member.heartbeat() for member in members] == [REBALANCE_IN_PROGRESS, *[UNKNOWN_MEMBER_ID] * 2]

    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        checked_by(facts)(address, reported)
        with WireClient(address) as client:
            target, state = extensions(client).target_size, described(client, GROUP)
            assert len(state.members) <= target or state.group_state == "PreparingRebalance", "nobody lets them go"

    points = crash_at_every_point(data_path, a_standby, act, flush, check=check)
    assert points >= 12  # two targets, a generation and its assignment


@pytest.mark.parametrize("flush", ["os", "always"])
def test_several_join_in_one_request(flush: str, data_path: Path) -> None:
    def act(group: AcknowledgedGroup) -> None:
        reported = group.acknowledged
        reported.assigned.clear()
        reported.members_in_flight |= {"c", "d"}
        with WireClient(group.address) as process, WireClient(group.address) as client:
            batch = [batch_entry("c"), batch_entry("d")]
            process.send(JoinGroupsRequest(GROUP, SESSION_MS, SESSION_MS, "consumer", batch), 0)
            for name in ("a", "b"):
                wait_for_state(client, GROUP, "PreparingRebalance")
                group.member(name).send_join()
            results = process.receive(JOIN_GROUPS, 0)[1].results
            assert [result.error_code for result in results] == [NONE, NONE]
            reported.generation = results[0].generation_id
            reported.members |= {name: result.member_id for name, result in zip("cd", results, strict=True)}
            reported.members_in_flight.clear()

    assert crash_at_every_point(data_path, two_members, act, flush) >= 3


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_leader_cannot_assign(flush: str, data_path: Path) -> None:
    """Nothing of the generation that came to nothing is left; those who were in it are members still."""

    def act(group: AcknowledgedGroup) -> None:
        group.join("a", "b")
        leader, follower = group.member("a"), group.member("b")
        assert leader.leader == leader.member_id
        follower.send_sync()
        failure = AssignmentFailure(7, "no")
        identity = (leader.generation, leader.member_id, "a", "consumer", "range")
        answer = leader.ask(SyncGroupRequest(GROUP, *identity, failure=failure), SYNC_VERSION)
        assert answer.error_code == follower.synced().error_code == REBALANCE_IN_PROGRESS
        group.join("a", "b")
        assert leader.leader == follower.member_id, "the other one may try"
        group.sync("a", "b")

    assert crash_at_every_point(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_assignments_grow(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(group: AcknowledgedGroup) -> None:
        facts.begin()
        leader, follower = group.member("a"), group.member("b")
        facts.epoch = extensions(leader).assignment_epoch
        facts.assignments = {"a": [partitions(0)], "b": [partitions(1), partitions(1, 2)]}
        grown = [SyncGroupRequestAssignment(follower.member_id, partitions(1, 2))]
        asked = SyncGroupRequest(
            GROUP,
            group.acknowledged.generation,
            leader.member_id,
            "a",
            "consumer",
            "range",
            grown,
            resync_from_epoch=facts.epoch,
        )
        answer = leader.ask(asked, SYNC_VERSION)
        assert (answer.error_code, answer.assignment_epoch) == (NONE, facts.epoch + 1)
        facts.assignments["b"] = [partitions(1, 2)]
        facts.epoch = answer.assignment_epoch
        assert follower.heartbeat() == REBALANCE_IN_PROGRESS

    def check(address: tuple[str, int], reported: Acknowledged) -> None:
        checked_by(facts)(address, reported)
        with WireMember(address, GROUP, "b", reported.members["b"], reported.generation) as follower:
            if facts.assignments["b"] == [partitions(1, 2)]:
                assert follower.heartbeat() == REBALANCE_IN_PROGRESS, "nobody tells it that its assignment grew"

    assert crash_at_every_point(data_path, two_members, act, flush, check=check) >= 3
