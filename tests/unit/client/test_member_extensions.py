"""A consumer's part in a group whose coordinator is a Holdfast, and in one whose coordinator is not: what it sends. The
broker is written by the test, the rest is real."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.assignors import Assignor, CooperativeStickyAssignor
from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription
from holdfast.client import join_desk
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import AssignorError
from holdfast.client.join_desk import JoinDesk
from holdfast.client.participation import Participation
from holdfast.client.topics import Topics
from holdfast.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    GroupExtensions,
)
from holdfast.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from holdfast.wire.apis.sync_group import SYNC_GROUP, AssignmentFailure, SyncGroupRequest, SyncGroupResponse
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_group import Group

ME, TOPIC = "me", "t"
Where = tuple[str, int]


def share(*numbers: int) -> bytes:
    return encode_assignment(Assignment([TopicPartitions(TOPIC, list(numbers))]))


class Leadership:
    """A coordinator that makes whoever joins the leader of a group of one, and keeps what it assigns."""

    def __init__(
        self, *, holdfast: bool = True, refuses_resync: bool = False, highest: Mapping[int, int] | None = None
    ) -> None:
        self.generation = 0
        self.epoch = -1
        self.assignment = b""
        self.metadata = b""
        self._refuses_resync = refuses_resync
        self.group = Group(
            (JOIN_GROUP, self._join),
            (SYNC_GROUP, self._sync),
            (DESCRIBE_GROUPS, self._describe),
            (OFFSET_FETCH, offsets),
            holdfast=holdfast,
            highest=highest,
        )
        self.group.partitions[TOPIC] = 2

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, protocol_name="", member_id=ME)
        self.generation += 1
        self.epoch = self.generation * 1_000_000
        protocol = request.protocols[0]
        self.metadata = protocol.metadata
        members = [JoinGroupResponseMember(ME, None, protocol.metadata)]
        return JoinGroupResponse(
            generation_id=self.generation, protocol_name=protocol.name, leader=ME, member_id=ME, members=members
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if request.failure is not None or (request.resync_from_epoch >= 0 and self._refuses_resync):
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        if request.resync_from_epoch >= 0:
            assert request.resync_from_epoch == self.epoch
            self.epoch += 1
        self.assignment = request.assignments[0].assignment
        return SyncGroupResponse(assignment=self.assignment, assignment_epoch=self.epoch if request.wants_epoch else -1)

    def _describe(self, request: Any) -> DescribeGroupsResponse:
        assert request.include_extensions
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(
                    group_id="g",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="cooperative-sticky",
                    members=[DescribedGroupMember(ME, None, "c", "/h", self.metadata, self.assignment)],
                    extensions=GroupExtensions(
                        generation_id=self.generation, assignment_epoch=self.epoch, leader=ME, settled=True
                    ),
                )
            ]
        )


def offsets(request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The group has committed 5 everywhere."""
    (asked,) = request.groups
    topics = [
        OffsetFetchResponseGroupTopic(
            topic.name,
            partitions=[OffsetFetchResponseGroupPartition(number, 5, 0, "") for number in topic.partition_indexes],
        )
        for topic in asked.topics or ()
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics=topics)])


class Heard:
    """What the application was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def rejoining(self, staying: Collection[Where], within_ms: int) -> None:
        pass

    def giving_up(self, partitions: Collection[Where], within_ms: int) -> None:
        pass

    def revoked(self, partitions: list[Where]) -> None:
        self.calls.append(("revoked", [number for _, number in partitions]))

    def lost(self, partitions: list[Where]) -> None:
        self.calls.append(("lost", [number for _, number in partitions]))

    def assigned(self, offsets: Mapping[Where, int]) -> None:
        self.calls.append(("assigned", sorted(number for _, number in offsets)))


@contextmanager
def participant(
    server: ScriptedServer, strategy: Any = "cooperative-sticky", desk: JoinDesk | None = None, **settings: Any
) -> Iterator[tuple[Participation, Heard]]:
    config = ConsumerConfig.read(
        {
            "bootstrap.servers": f"{server.address.host}:{server.address.port}",
            "group.id": "g",
            "partition.assignment.strategy": strategy,
            "metadata.max.age.ms": 50,
            "metadata.rebalance.min.interval.ms": 0,
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 10_000,
            "retry.backoff.ms": 1,
            **settings,
        },
        {},
    )
    heard = Heard()
    taking_part = Participation(config, heard)
    if desk is not None:
        taking_part.join_through(desk)
    taking_part.subscribe(Topics.read([TOPIC]))
    try:
        yield taking_part, heard
    finally:
        taking_part.close()


def attend_until(taking_part: Participation, look: Callable[[], Any], what: str) -> None:
    def attended() -> Any:
        taking_part.attend()
        return look()

    eventually(attended, what)


# -- a topic grows -----------------------------------------------------------------------------------------------------


def test_a_leader_hands_out_what_has_come_without_a_rebalance() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, participant(server) as (taking_part, heard):
        attend_until(taking_part, lambda: heard.calls == [("assigned", [0, 1])], "the first share")
        first = taking_part.epoch

        coordinator.group.partitions[TOPIC] = 4
        attend_until(taking_part, lambda: len(heard.calls) == 2, "the growth")

        assert heard.calls[1:] == [("assigned", [2, 3])]
        assert (taking_part.generation, first, taking_part.epoch) == (1, 1_000_000, 1_000_001)
        assert len(coordinator.group.messages(JOIN_GROUP)) == 2  # KIP-394: the first is for the id
        assert [one.resync_from_epoch for one in coordinator.group.messages(SYNC_GROUP)] == [-1, 1_000_000]


def test_each_growth_is_one_resync() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, participant(server) as (taking_part, heard):
        attend_until(taking_part, lambda: heard.calls == [("assigned", [0, 1])], "the first share")
        for count in (3, 5):
            coordinator.group.partitions[TOPIC] = count
            attend_until(taking_part, lambda: len(taking_part.share.owned) == count, "the growth")  # noqa: B023

        assert taking_part.epoch == 1_000_002
        assert len(coordinator.group.messages(DESCRIBE_GROUPS)) == 2


def test_a_resync_that_is_refused_is_tried_once_and_then_the_group_rebalances() -> None:
    coordinator = Leadership(refuses_resync=True)
    with ScriptedServer(coordinator.group) as server, participant(server) as (taking_part, heard):
        attend_until(taking_part, lambda: heard.calls == [("assigned", [0, 1])], "the first share")

        coordinator.group.partitions[TOPIC] = 4
        attend_until(taking_part, lambda: taking_part.generation == 2, "the rebalance")
        attend_until(taking_part, lambda: len(heard.calls) == 2, "the growth")

        assert [one.resync_from_epoch for one in coordinator.group.messages(SYNC_GROUP)] == [-1, 1_000_000, -1]
        assert taking_part.epoch == 2_000_000


def test_a_broker_without_extensions_sees_an_ordinary_rebalance_and_nothing_else() -> None:
    coordinator = Leadership(holdfast=False)
    with ScriptedServer(coordinator.group) as server, participant(server) as (taking_part, heard):
        attend_until(taking_part, lambda: heard.calls == [("assigned", [0, 1])], "the first share")

        coordinator.group.partitions[TOPIC] = 4
        attend_until(taking_part, lambda: len(heard.calls) == 2, "the growth")

        assert taking_part.generation == 2 and taking_part.epoch is None
        assert coordinator.group.messages(DESCRIBE_GROUPS) == []
        syncs = coordinator.group.messages(SYNC_GROUP)
        assert {(one.wants_epoch, one.resync_from_epoch, one.failure) for one in syncs} == {(False, -1, None)}


# -- the assignor fails ------------------------------------------------------------------------------------------------


class FailsAtFirst(CooperativeStickyAssignor):
    name = "fails-at-first"

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        if self.failures:
            self.failures -= 1
            raise KeyError("a mistake in the assignor")
        return super().assign(cluster, subscriptions)


class Forgetful(Assignor):
    name = "forgetful"

    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        return {}


def test_a_leader_that_cannot_assign_tells_the_coordinator_and_goes_on() -> None:
    coordinator = Leadership()
    with (
        ScriptedServer(coordinator.group) as server,
        participant(server, [FailsAtFirst(2)]) as (taking_part, heard),
    ):
        attend_until(taking_part, lambda: heard.calls == [("assigned", [0, 1])], "the share, after two failures")

        failures = [one.failure for one in coordinator.group.messages(SYNC_GROUP)]
        assert [failure and failure.code for failure in failures] == [1, 1, None]
        assert "KeyError: 'a mistake in the assignor'" in failures[0].message
        assert coordinator.group.messages(LEAVE_GROUP) == []


def test_after_the_third_failure_in_a_row_it_leaves_and_the_application_hears() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, participant(server, [Forgetful()]) as (taking_part, _):
        with pytest.raises(AssignorError, match=r"forgetful.* forgot t-0"):
            attend_until(taking_part, lambda: False, "an error")

        assert [one.failure.code for one in coordinator.group.messages(SYNC_GROUP)] == [2, 2, 2]
        coordinator.group.wait_for(LEAVE_GROUP)


def test_a_broker_without_extensions_is_told_nothing_and_the_first_failure_is_the_last() -> None:
    coordinator = Leadership(holdfast=False)
    with ScriptedServer(coordinator.group) as server, participant(server, [FailsAtFirst(2)]) as (taking_part, _):
        with pytest.raises(AssignorError, match="a mistake in the assignor"):
            attend_until(taking_part, lambda: False, "an error")

        assert coordinator.group.messages(SYNC_GROUP) == []
        coordinator.group.wait_for(LEAVE_GROUP)


def test_a_follower_logs_once_why_its_generation_came_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # given a leader that cannot assign the first generation
    def join(request: JoinGroupRequest) -> JoinGroupResponse:
        name = request.protocols[0].name
        return JoinGroupResponse(generation_id=1, protocol_name=name, leader="another", member_id=ME)

    def sync(_request: SyncGroupRequest) -> SyncGroupResponse:
        if len(group.messages(SYNC_GROUP)) > 1:
            return SyncGroupResponse(assignment=share(1), assignment_epoch=7)
        failure = AssignmentFailure(1, "their assignor raised")
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=failure)

    group = Group((JOIN_GROUP, join), (SYNC_GROUP, sync), (OFFSET_FETCH, offsets))
    with (
        caplog.at_level(logging.WARNING, "holdfast.client"),
        ScriptedServer(group) as server,
        participant(server) as (taking_part, heard),
    ):
        # when the second comes to be
        attend_until(taking_part, lambda: heard.calls == [("assigned", [1])], "the share")

        # then the log has the reason, once
        assert taking_part.epoch == 7
    assert [record.message for record in caplog.records if "their assignor raised" in record.message] == [
        "generation 1 came to nothing, and is tried again: its leader could not assign (1: their assignor raised)"
    ]


# -- joining together --------------------------------------------------------------------------------------------------


class Followers:
    """A coordinator in whose group somebody else leads; it lets everybody in."""

    def __init__(self, *, holdfast: bool) -> None:
        self.group = Group(
            (JOIN_GROUP, self._join),
            (JOIN_GROUPS, self._join_together),
            (SYNC_GROUP, self._sync),
            (OFFSET_FETCH, offsets),
            holdfast=holdfast,
        )

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=1,
            protocol_name=request.protocols[0].name,
            leader="another",
            member_id=request.group_instance_id or "",
        )

    def _join_together(self, request: JoinGroupsRequest) -> JoinGroupsResponse:
        return JoinGroupsResponse(
            results=[
                JoinGroupsResult(
                    generation_id=1,
                    protocol_name=one.protocols[0].name,
                    leader="another",
                    member_id=one.group_instance_id or "",
                )
                for one in request.members
            ]
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=share(int(request.member_id)))


@contextmanager
def three_of_them(server: ScriptedServer) -> Iterator[None]:
    """With one desk, until each has its share."""
    desk = JoinDesk(3)
    first, second, third = (participant(server, desk=desk, **{"group.instance.id": str(number)}) for number in range(3))
    with first as one, second as two, third as three:
        members = (one, two, three)

        def attended() -> bool:
            for taking_part, _ in members:
                taking_part.attend()
            return [heard.calls for _, heard in members] == [[("assigned", [number])] for number in range(3)]

        eventually(attended, "each has its share")
        yield


def test_members_with_one_desk_join_in_one_request_and_sync_on_connections_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_desk, "EXPECTED_WITHIN_S", 30.0)
    coordinator = Followers(holdfast=True)

    with ScriptedServer(coordinator.group) as server, three_of_them(server):
        pass

    group = coordinator.group
    (request,) = group.messages(JOIN_GROUPS)
    assert sorted(one.group_instance_id for one in request.members) == ["0", "1", "2"]
    assert group.messages(JOIN_GROUP) == []
    assert len(set(map(id, group.connections(SYNC_GROUP)))) == 3
    assert not set(map(id, group.connections(SYNC_GROUP))) & set(map(id, group.connections(JOIN_GROUPS)))


def test_a_broker_without_extensions_gets_a_join_from_each() -> None:
    coordinator = Followers(holdfast=False)

    with ScriptedServer(coordinator.group) as server, three_of_them(server):
        pass

    assert coordinator.group.messages(JOIN_GROUPS) == []
    assert sorted(one.group_instance_id for one in coordinator.group.messages(JOIN_GROUP)) == ["0", "1", "2"]
