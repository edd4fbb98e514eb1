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
from holdfast.client import join_batcher
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.consumer_membership import ConsumerMembership
from holdfast.client.errors import AssignorError
from holdfast.client.join_batcher import JoinBatcher
from holdfast.client.runtime import SYSTEM
from holdfast.client.subscription import Subscription
from holdfast.types import TopicPartition
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


def assignment(*numbers: int) -> bytes:
    return encode_assignment(Assignment([TopicPartitions(TOPIC, list(numbers))]))


class Leadership:
    """A coordinator that makes every member that joins the leader of a group of one, and keeps what it assigns."""

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


class RecordedCallbacks:
    """The callbacks that the application got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def before_rejoin(self, staying: Collection[TopicPartition], within_ms: int) -> None:
        pass

    def before_revoke(self, partitions: Collection[TopicPartition], within_ms: int) -> None:
        pass

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", [number for _, number in partitions]))

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", [number for _, number in partitions]))

    def assigned(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.calls.append(("assigned", sorted(number for _, number in offsets)))


@contextmanager
def consumer_of(
    server: ScriptedServer, strategy: Any = "cooperative-sticky", batcher: JoinBatcher | None = None, **settings: Any
) -> Iterator[tuple[ConsumerMembership, RecordedCallbacks]]:
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
    callbacks = RecordedCallbacks()
    consumer = ConsumerMembership(config, callbacks, runtime=SYSTEM)
    if batcher is not None:
        consumer.use_batcher(batcher)
    consumer.subscribe(Subscription.parse([TOPIC]))
    try:
        yield consumer, callbacks
    finally:
        consumer.close()


def poll_until(consumer: ConsumerMembership, look: Callable[[], Any], what: str) -> None:
    def polled() -> Any:
        consumer.poll()
        return look()

    eventually(polled, what)


# -- a topic grows -----------------------------------------------------------------------------------------------------


def test_a_leader_hands_out_what_has_come_without_a_rebalance() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, consumer_of(server) as (consumer, callbacks):
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [0, 1])], "the first assignment")
        first = consumer.epoch

        coordinator.group.partitions[TOPIC] = 4
        poll_until(consumer, lambda: len(callbacks.calls) == 2, "the growth")

        assert callbacks.calls[1:] == [("assigned", [2, 3])]
        assert (consumer.generation_id, first, consumer.epoch) == (1, 1_000_000, 1_000_001)
        assert len(coordinator.group.messages(JOIN_GROUP)) == 2  # KIP-394: the first is for the id
        assert [one.resync_from_epoch for one in coordinator.group.messages(SYNC_GROUP)] == [-1, 1_000_000]


def test_each_growth_is_one_resync() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, consumer_of(server) as (consumer, callbacks):
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [0, 1])], "the first assignment")
        for count in (3, 5):
            coordinator.group.partitions[TOPIC] = count
            poll_until(consumer, lambda: len(consumer.owned_partitions.partitions) == count, "the growth")  # noqa: B023

        assert consumer.epoch == 1_000_002
        assert len(coordinator.group.messages(DESCRIBE_GROUPS)) == 2


def test_a_resync_that_is_refused_is_tried_once_and_then_the_group_rebalances() -> None:
    coordinator = Leadership(refuses_resync=True)
    with ScriptedServer(coordinator.group) as server, consumer_of(server) as (consumer, callbacks):
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [0, 1])], "the first assignment")

        coordinator.group.partitions[TOPIC] = 4
        poll_until(consumer, lambda: consumer.generation_id == 2, "the rebalance")
        poll_until(consumer, lambda: len(callbacks.calls) == 2, "the growth")

        assert [one.resync_from_epoch for one in coordinator.group.messages(SYNC_GROUP)] == [-1, 1_000_000, -1]
        assert consumer.epoch == 2_000_000


def test_a_broker_without_extensions_sees_an_ordinary_rebalance_and_nothing_else() -> None:
    coordinator = Leadership(holdfast=False)
    with ScriptedServer(coordinator.group) as server, consumer_of(server) as (consumer, callbacks):
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [0, 1])], "the first assignment")

        coordinator.group.partitions[TOPIC] = 4
        poll_until(consumer, lambda: len(callbacks.calls) == 2, "the growth")

        assert consumer.generation_id == 2 and consumer.epoch is None
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


def test_a_leader_that_cannot_assign_reports_the_failure_and_continues() -> None:
    coordinator = Leadership()
    with (
        ScriptedServer(coordinator.group) as server,
        consumer_of(server, [FailsAtFirst(2)]) as (consumer, callbacks),
    ):
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [0, 1])], "the assignment, after two failures")

        failures = [one.failure for one in coordinator.group.messages(SYNC_GROUP)]
        assert [failure and failure.code for failure in failures] == [1, 1, None]
        assert "KeyError: 'a mistake in the assignor'" in failures[0].message
        assert coordinator.group.messages(LEAVE_GROUP) == []


def test_after_three_failures_in_a_row_it_leaves_and_the_application_gets_the_error() -> None:
    coordinator = Leadership()
    with ScriptedServer(coordinator.group) as server, consumer_of(server, [Forgetful()]) as (consumer, _):
        with pytest.raises(AssignorError, match=r"forgetful.* forgot t-0"):
            poll_until(consumer, lambda: False, "an error")

        assert [one.failure.code for one in coordinator.group.messages(SYNC_GROUP)] == [2, 2, 2]
        coordinator.group.wait_for(LEAVE_GROUP)


def test_without_extensions_the_first_failure_is_final_and_not_reported() -> None:
    coordinator = Leadership(holdfast=False)
    with ScriptedServer(coordinator.group) as server, consumer_of(server, [FailsAtFirst(2)]) as (consumer, _):
        with pytest.raises(AssignorError, match="a mistake in the assignor"):
            poll_until(consumer, lambda: False, "an error")

        assert coordinator.group.messages(SYNC_GROUP) == []
        coordinator.group.wait_for(LEAVE_GROUP)


def test_a_follower_logs_once_why_its_generation_came_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # given a leader that cannot assign the first generation
    def join(request: JoinGroupRequest) -> JoinGroupResponse:
        name = request.protocols[0].name
        return JoinGroupResponse(generation_id=1, protocol_name=name, leader="another", member_id=ME)

    def sync(_request: SyncGroupRequest) -> SyncGroupResponse:
        if len(group.messages(SYNC_GROUP)) > 1:
            return SyncGroupResponse(assignment=assignment(1), assignment_epoch=7)
        failure = AssignmentFailure(1, "their assignor raised")
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, failure=failure)

    group = Group((JOIN_GROUP, join), (SYNC_GROUP, sync), (OFFSET_FETCH, offsets))
    with (
        caplog.at_level(logging.WARNING, "holdfast.client"),
        ScriptedServer(group) as server,
        consumer_of(server) as (consumer, callbacks),
    ):
        # when the second comes to be
        poll_until(consumer, lambda: callbacks.calls == [("assigned", [1])], "the assignment")

        # then the log has the reason, once
        assert consumer.epoch == 7
    assert [record.message for record in caplog.records if "their assignor raised" in record.message] == [
        "the group joins again: the leader of generation 1 could not assign (1: their assignor raised)"
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
        return SyncGroupResponse(assignment=assignment(int(request.member_id)))


@contextmanager
def three_of_them(server: ScriptedServer) -> Iterator[None]:
    """With one batcher, until each has its assignment."""
    batcher = JoinBatcher(3, runtime=SYSTEM)
    first, second, third = (
        consumer_of(server, batcher=batcher, **{"group.instance.id": str(number)}) for number in range(3)
    )
    with first as one, second as two, third as three:
        members = (one, two, three)

        def polled() -> bool:
            for consumer, _ in members:
                consumer.poll()
            return [callbacks.calls for _, callbacks in members] == [[("assigned", [number])] for number in range(3)]

        eventually(polled, "each has its assignment")
        yield


def test_members_of_one_batcher_join_in_one_request_and_sync_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_batcher, "EXPECTED_TIMEOUT_S", 30.0)
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
