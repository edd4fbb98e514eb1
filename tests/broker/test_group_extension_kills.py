"""kill -9 wherever something is written while a group does what Kafka's cannot: what was told holds afterwards."""

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
from tests.broker import group_kills
from tests.broker.group_kills import GROUP, NONE, Check, Teller, Told, kill_everywhere, two_members
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
    """What was told beyond what Kafka's groups tell; of what was asked and not answered, both may be true."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Each point is a life of its own."""
        self.expected: list[set[str]] = [set()]
        self.target: list[int] = [0]
        self.epoch = 0
        self.shares: dict[str, list[bytes]] = {}
        """By instance id."""


def extensions(client: WireClient) -> GroupExtensions:
    asked = DescribeGroupsRequest([GROUP], include_extensions=True)
    found: GroupExtensions | None = client.ask(asked, 6).groups[0].extensions
    return found or GroupExtensions()


def announce(client: WireClient, facts: Facts, *instance_ids: str) -> None:
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
    def check(address: tuple[str, int], told: Told) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            found = extensions(client)
            assert {one.group_instance_id for one in found.expected} in facts.expected
            assert found.target_size in facts.target
            assert found.assignment_epoch >= facts.epoch, "the epoch went back"
            assert found.generation_id >= told.generation
            shares = {
                member.group_instance_id: member.member_assignment
                for member in described(client, GROUP).members
                if member.member_assignment != EMPTY_ASSIGNMENT
            }
            for instance_id, possible in facts.shares.items():
                assert shares.get(instance_id) in possible, f"{instance_id}: {shares.get(instance_id)!r}"

    return check


@pytest.mark.parametrize("flush", ["os", "always"])
def test_members_are_announced_and_cancelled(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(teller: Teller) -> None:
        facts.begin()
        with WireClient(teller.address) as client:
            announce(client, facts, "c", "d")
            announce(client, facts, "e")
            cancel(client, facts, "c", "e")

    points = kill_everywhere(data_path, two_members, act, flush, check=checked_by(facts))
    assert points >= 9  # three records, each before, half and whole


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_registration_ends_by_itself(flush: str, data_path: Path) -> None:
    """Whether it was over before the kill or not, it is afterwards."""

    def act(teller: Teller) -> None:
        with WireClient(teller.address) as client:
            answer = client.ask(AddMembersToGroupRequest(GROUP, ["c"], wait_ms=100), 0)
            assert [result.error_code for result in answer.results] == [NONE]
            eventually(lambda: not extensions(client).expected, "the end of the registration")

    def check(address: tuple[str, int], told: Told) -> None:
        with WireClient(address) as client:
            wait_until_loaded(client)
            eventually(lambda: not extensions(client).expected, "the end of the registration")
        group_kills.check(address, told)

    points = kill_everywhere(data_path, two_members, act, flush, check=check)
    assert points >= 6  # its record and the one that takes it back


@pytest.mark.parametrize("flush", ["os", "always"])
def test_announced_members_are_taken_in(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(teller: Teller) -> None:
        facts.begin()
        with WireClient(teller.address) as client, WireMember(teller.address, GROUP, "c") as newcomer:
            announce(client, facts, "c")
            teller.told.assigned.clear()
            facts.expected.append(set())  # from here on it may be in the generation
            newcomer.send_join()
            eventually(lambda: described(client, GROUP).group_state == "PreparingRebalance", "all are to join")
            for name in ("a", "b"):
                teller.member(name).send_join()
            assert newcomer.joined().error_code == NONE
            facts.expected = [set()]
            teller.told.generation = newcomer.generation

    points = kill_everywhere(data_path, two_members, act, flush, check=checked_by(facts))
    assert points >= 6


def a_standby(teller: Teller) -> None:
    """Given: a and b have the shares 0 and 1, and s may wait for one of them."""
    two_members(teller)
    with WireClient(teller.address) as client:
        set_target(client, Facts(), 2)


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_standby_takes_over(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(teller: Teller) -> None:
        facts.begin()
        facts.target = [2]
        facts.shares = {"a": [partitions(0)], "b": [partitions(1)]}
        with WireMember(teller.address, GROUP, "s") as standby:
            assert standby.join().error_code == NONE
            assert standby.sync().assignment == EMPTY_ASSIGNMENT
            teller.leave("b")
            assert standby.heartbeat() == REBALANCE_IN_PROGRESS
            before = extensions(standby).assignment_epoch
            # b is still stored as the owner until s is; nobody may be told of both.
            facts.shares.pop("b")
            standby.send_join()
            assert standby.joined().error_code == NONE
            facts.shares["s"] = [partitions(1)]
            assert standby.sync().assignment == partitions(1)
            facts.epoch = extensions(standby).assignment_epoch
            assert facts.epoch == before + 1

    points = kill_everywhere(data_path, a_standby, act, flush, check=checked_by(facts))
    assert points >= 3


@pytest.mark.parametrize("flush", ["os", "always"])
def test_the_target_is_raised_and_lowered(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(teller: Teller) -> None:
        facts.begin()
        facts.target = [2]
        with WireClient(teller.address) as client, WireMember(teller.address, GROUP, "s") as standby:
            assert standby.join().error_code == NONE
            assert standby.sync().assignment == EMPTY_ASSIGNMENT
            set_target(client, facts, 3)
            # then it is taken in
            members = [teller.member("a"), teller.member("b"), standby]
            for member in members:
                wait_for_state(client, GROUP, "PreparingRebalance")
                member.send_join()
            assert [member.joined().error_code for member in members] == [NONE] * 3
            teller.told.generation = standby.generation
            plan = {member.member_id: partitions(number) for number, member in enumerate(members)}
            for member in members:
                member.send_sync(plan if member.leader == member.member_id else None)
            assert [member.synced().assignment for member in members] == list(plan.values())
            facts.epoch = extensions(client).assignment_epoch
            set_target(client, facts, 1)
            # then only the first is left
            assert [member.heartbeat() for member in members] == [REBALANCE_IN_PROGRESS, *[UNKNOWN_MEMBER_ID] * 2]

    def check(address: tuple[str, int], told: Told) -> None:
        checked_by(facts)(address, told)
        with WireClient(address) as client:
            target, state = extensions(client).target_size, described(client, GROUP)
            assert len(state.members) <= target or state.group_state == "PreparingRebalance", "nobody lets them go"

    points = kill_everywhere(data_path, a_standby, act, flush, check=check)
    assert points >= 12  # two targets, a generation and its assignment


@pytest.mark.parametrize("flush", ["os", "always"])
def test_several_join_in_one_request(flush: str, data_path: Path) -> None:
    def act(teller: Teller) -> None:
        told = teller.told
        told.assigned.clear()
        told.members_in_flight |= {"c", "d"}
        with WireClient(teller.address) as process, WireClient(teller.address) as client:
            batch = [batch_entry("c"), batch_entry("d")]
            process.send(JoinGroupsRequest(GROUP, SESSION_MS, SESSION_MS, "consumer", batch), 0)
            for name in ("a", "b"):
                wait_for_state(client, GROUP, "PreparingRebalance")
                teller.member(name).send_join()
            results = process.receive(JOIN_GROUPS, 0)[1].results
            assert [result.error_code for result in results] == [NONE, NONE]
            told.generation = results[0].generation_id
            told.members |= {name: result.member_id for name, result in zip("cd", results, strict=True)}
            told.members_in_flight.clear()

    assert kill_everywhere(data_path, two_members, act, flush) >= 3


@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_leader_cannot_assign(flush: str, data_path: Path) -> None:
    """Nothing of the generation that came to nothing is left; those who were in it are members still."""

    def act(teller: Teller) -> None:
        teller.join("a", "b")
        leader, follower = teller.member("a"), teller.member("b")
        assert leader.leader == leader.member_id
        follower.send_sync()
        failure = AssignmentFailure(7, "no")
        identity = (leader.generation, leader.member_id, "a", "consumer", "range")
        answer = leader.ask(SyncGroupRequest(GROUP, *identity, failure=failure), SYNC_VERSION)
        assert answer.error_code == follower.synced().error_code == REBALANCE_IN_PROGRESS
        teller.join("a", "b")
        assert leader.leader == follower.member_id, "the other one may try"
        teller.sync("a", "b")

    assert kill_everywhere(data_path, two_members, act, flush) >= 9


@pytest.mark.parametrize("flush", ["os", "always"])
def test_shares_grow(flush: str, data_path: Path) -> None:
    facts = Facts()

    def act(teller: Teller) -> None:
        facts.begin()
        leader, follower = teller.member("a"), teller.member("b")
        facts.epoch = extensions(leader).assignment_epoch
        facts.shares = {"a": [partitions(0)], "b": [partitions(1), partitions(1, 2)]}
        grown = [SyncGroupRequestAssignment(follower.member_id, partitions(1, 2))]
        asked = SyncGroupRequest(
            GROUP,
            teller.told.generation,
            leader.member_id,
            "a",
            "consumer",
            "range",
            grown,
            resync_from_epoch=facts.epoch,
        )
        answer = leader.ask(asked, SYNC_VERSION)
        assert (answer.error_code, answer.assignment_epoch) == (NONE, facts.epoch + 1)
        facts.shares["b"] = [partitions(1, 2)]
        facts.epoch = answer.assignment_epoch
        assert follower.heartbeat() == REBALANCE_IN_PROGRESS

    def check(address: tuple[str, int], told: Told) -> None:
        checked_by(facts)(address, told)
        with WireMember(address, GROUP, "b", told.members["b"], told.generation) as follower:
            if facts.shares["b"] == [partitions(1, 2)]:
                assert follower.heartbeat() == REBALANCE_IN_PROGRESS, "nobody tells it that its share grew"

    assert kill_everywhere(data_path, two_members, act, flush, check=check) >= 3
