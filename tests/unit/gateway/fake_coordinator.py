"""Kafka's group coordinator, as far as the gateway uses it: one member for each instance id, and offsets."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

from holdfast.types import TopicPartition
from holdfast.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from holdfast.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.fake_upstream import FakeUpstream

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
Offset = tuple[int, int, str]


@dataclass
class FakeGroup:
    state: str = EMPTY
    protocol_type: str = ""
    group_type: str = "classic"
    generation: int = 0
    members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id, or by any other name of a member."""
    parked: asyncio.Future[JoinGroupResponse] | None = None
    offsets: dict[TopicPartition, Offset] = field(default_factory=dict)
    unstable: set[TopicPartition] = field(default_factory=set)


class FakeCoordinator:
    def __init__(self, delay_s: float = 0.05) -> None:
        self.kafka = FakeUpstream(node_ids=(1,))
        self.groups: dict[str, FakeGroup] = {}
        self.delay_s = delay_s
        """Until the first JoinGroup of an empty group is answered."""
        self.longest_session_ms = 1_800_000
        self.errors: dict[type[Any], list[ErrorCode]] = {}
        """Errors for the next requests of a type."""
        self.refused_partitions: dict[TopicPartition, ErrorCode] = {}
        self.end_of_log = 7
        self.stable_ends: list[int] = []
        """The last stable offsets that are returned, one after the other; then the end of the log."""
        self._ids = itertools.count(1)
        self.kafka.handlers = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            OffsetFetchRequest: self._fetch,
            OffsetCommitRequest: self._commit,
            ListOffsetsRequest: self._list_offsets,
            MetadataRequest: self._metadata,
        }

    def group(self, group_id: str) -> FakeGroup:
        return self.groups.setdefault(group_id, FakeGroup())

    def with_consumers(self, group_id: str, *names: str, group_type: str = "classic") -> FakeGroup:
        group = self.group(group_id)
        group.state, group.protocol_type, group.group_type = STABLE, "consumer", group_type
        group.members = {name: name for name in names}
        return group

    def empty(self, group_id: str) -> None:
        group = self.group(group_id)
        group.state, group.members, group.group_type = EMPTY, {}, "classic"

    def _error(self, request: Any) -> ErrorCode:
        following = self.errors.get(type(request))
        return following.pop(0) if following else ErrorCode.NONE

    # -- membership ----------------------------------------------------------------------------------------------------

    def _join(self, _node_id: int, request: JoinGroupRequest) -> Any:
        group, instance_id = self.group(request.group_id), request.group_instance_id
        assert instance_id is not None
        error = self._error(request)
        if error:
            return JoinGroupResponse(error_code=error)
        if request.session_timeout_ms > self.longest_session_ms:
            return JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT)
        if group.members and group.protocol_type != request.protocol_type:
            return JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group.protocol_type = request.protocol_type
        group.members[instance_id] = f"member-{next(self._ids)}"
        if group.parked is not None and not group.parked.done():
            group.parked.set_result(JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        if group.state == STABLE:
            return self._joined(group)
        if group.state == COMPLETING:
            group.generation += 1
            return self._joined(group)
        loop = asyncio.get_running_loop()
        group.parked = loop.create_future()
        if group.state == EMPTY:
            group.state = PREPARING
            loop.call_later(self.delay_s, self._complete, group)
        return group.parked

    def _joined(self, group: FakeGroup) -> JoinGroupResponse:
        (member_id,) = group.members.values()
        return JoinGroupResponse(generation_id=group.generation, leader=member_id, member_id=member_id)

    def _complete(self, group: FakeGroup) -> None:
        if group.state != PREPARING:
            return
        group.state, group.generation = COMPLETING, group.generation + 1
        if group.parked is not None and not group.parked.done():
            group.parked.set_result(self._joined(group))

    def _check(self, request: Any, generation: int) -> ErrorCode:
        group = self.group(request.group_id)
        error = self._error(request)
        if error:
            return error
        known = group.members.get(request.group_instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION

    def _sync(self, _node_id: int, request: SyncGroupRequest) -> SyncGroupResponse:
        error = self._check(request, request.generation_id)
        if not error:
            assert [one.member_id for one in request.assignments] == [request.member_id]
            self.group(request.group_id).state = STABLE
        return SyncGroupResponse(error_code=error)

    def _heartbeat(self, _node_id: int, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._check(request, request.generation_id))

    def _leave(self, _node_id: int, request: LeaveGroupRequest) -> LeaveGroupResponse:
        error = self._error(request)
        if error:
            return LeaveGroupResponse(error_code=error)
        group = self.group(request.group_id)
        left = group.members.pop(request.members[0].group_instance_id or "", None)
        if not group.members:
            group.state = EMPTY
        code = ErrorCode.UNKNOWN_MEMBER_ID if left is None else ErrorCode.NONE
        return LeaveGroupResponse(members=[MemberResponse("", "", code)])

    # -- looks ---------------------------------------------------------------------------------------------------------

    def _describe(self, _node_id: int, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[self._described(group_id) for group_id in request.groups])

    def _described(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None or group.group_type != "classic":
            return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "not found", group_id, "Dead")
        members = [
            DescribedGroupMember(member_id, name, "a-client", "/10.0.0.1") for name, member_id in group.members.items()
        ]
        protocol_type = group.protocol_type
        return DescribedGroup(group_id=group_id, group_state=group.state, protocol_type=protocol_type, members=members)

    def _list(self, _node_id: int, _request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id, group.protocol_type, group.state, group.group_type)
                for group_id, group in self.groups.items()
            ]
        )

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _fetch(self, _node_id: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.require_stable
        group = self.group(request.groups[0].group_id)
        topics: dict[str, list[OffsetFetchResponseGroupPartition]] = {}
        for (topic, partition), (offset, epoch, metadata) in group.offsets.items():
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT if (topic, partition) in group.unstable else ErrorCode.NONE
            found = OffsetFetchResponseGroupPartition(partition, offset, epoch, metadata, code)
            topics.setdefault(topic, []).append(found)
        answers = [OffsetFetchResponseGroupTopic(name=name, partitions=found) for name, found in topics.items()]
        error = self._error(request)
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(request.groups[0].group_id, answers, error)])

    def _commit(self, _node_id: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        error = self._check(request, request.generation_id_or_member_epoch)
        group = self.group(request.group_id)
        topics = []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                key = topic.name, one.partition_index
                code = error or self.refused_partitions.get(key, ErrorCode.NONE)
                if not code:
                    group.offsets[key] = (
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                    )
                partitions.append(OffsetCommitResponsePartition(one.partition_index, code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    def _list_offsets(self, _node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        is_stable = request.isolation_level == 1
        offset = self.stable_ends.pop(0) if is_stable and self.stable_ends else self.end_of_log
        wanted = request.topics[0].partitions[0].partition_index
        found = ListOffsetsPartitionResponse(wanted, self._error(request), offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(request.topics[0].name, [found])])

    def _metadata(self, _node_id: int, request: MetadataRequest) -> MetadataResponse:
        assert request.topics is not None
        (wanted,) = request.topics
        partitions = [MetadataResponsePartition(partition_index=number) for number in range(50)]
        return MetadataResponse(
            topics=[MetadataResponseTopic(self._error(request), wanted.name, partitions=partitions)]
        )
