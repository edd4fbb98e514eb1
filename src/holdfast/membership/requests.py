"""The requests of a member, each built for a version that the broker supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.membership.generation import Generation
from holdfast.membership.settings import MembershipSettings
from holdfast.types import TopicPartition
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupRequest, SyncGroupRequestAssignment

BuildRequest = Callable[[int], Any]
OffsetAndMetadata = tuple[int, str | None, int]
"""Offset, metadata and leader epoch (-1 if unknown)."""

MAX_REASON_LENGTH = 255
MAX_VERSION_WITH_TOPIC_NAMES = 9
"""OffsetCommit and OffsetFetch v10 name topics by id."""

FIRST_FLEXIBLE_SYNC = 4
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class SyncExtensions:
    """The tagged fields of a SyncGroup to a coordinator with Holdfast's extensions."""

    resync_from_epoch: int = NO_EPOCH
    failure: AssignmentFailure | None = None


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    node_id: int
    host: str
    port: int


def find_coordinator(group_id: str) -> BuildRequest:
    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        return FindCoordinatorRequest(key=group_id)

    return build


def parse_coordinator(response: FindCoordinatorResponse) -> tuple[int, CoordinatorNode]:
    found = response.coordinators[0] if response.coordinators else response
    return found.error_code, CoordinatorNode(found.node_id, found.host, found.port)


def join_group(
    settings: MembershipSettings,
    generation: Generation,
    instance_id: str | None,
    protocols: Sequence[tuple[str, bytes]],
    reason: str,
) -> BuildRequest:
    def build(version: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=generation.member_id,
            group_instance_id=instance_id,
            protocol_type=settings.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
            reason=reason[:MAX_REASON_LENGTH] if version >= 8 else None,
        )

    return build


def sync_group(
    settings: MembershipSettings,
    generation: Generation,
    instance_id: str | None,
    assignments: Mapping[str, bytes],
    extensions: SyncExtensions | None,
) -> BuildRequest:
    def build(version: int) -> SyncGroupRequest:
        tags = extensions if version >= FIRST_FLEXIBLE_SYNC else None
        return SyncGroupRequest(
            group_id=settings.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=instance_id,
            protocol_type=settings.protocol_type if version >= 5 else None,
            protocol_name=generation.protocol if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(member, assigned) for member, assigned in assignments.items()],
            wants_epoch=tags is not None,
            resync_from_epoch=NO_EPOCH if tags is None else tags.resync_from_epoch,
            failure=None if tags is None else tags.failure,
        )

    return build


def heartbeat(group_id: str, generation: Generation, instance_id: str | None) -> BuildRequest:
    return lambda _version: HeartbeatRequest(group_id, generation.generation_id, generation.member_id, instance_id)


def leave_group(group_id: str, member_id: str, instance_id: str | None, reason: str) -> BuildRequest:
    def build(version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id, member_id=member_id)
        cut = reason[:MAX_REASON_LENGTH] if version >= 5 else None
        return LeaveGroupRequest(group_id, members=[MemberIdentity(member_id, instance_id, cut)])

    return build


def offset_commit(
    group_id: str, generation: Generation, instance_id: str | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> BuildRequest:
    def build(version: int) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), (offset, metadata, epoch) in offsets.items():
            entry = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch if version >= 6 else -1,
                committed_metadata=metadata or "",
            )
            topics.setdefault(topic, []).append(entry)
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )

    return build
