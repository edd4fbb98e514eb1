"""The requests of a member, each built for the version that the broker speaks, and what their answers come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.membership.seat import Seat
from holdfast.membership.settings import MembershipSettings
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

Build = Callable[[int], Any]
Offset = tuple[int, str | None, int]
"""Offset, metadata and leader epoch (-1 where none is known)."""

LONGEST_REASON = 255
HIGHEST_WITH_TOPIC_NAMES = 9
"""OffsetCommit and OffsetFetch v10 name topics by id."""


FIRST_SYNC_WITH_TAGS = 4
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class SyncExtensions:
    """What a SyncGroup says beyond Kafka, to a coordinator that understands it."""

    resync_from_epoch: int = NO_EPOCH
    failure: AssignmentFailure | None = None


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int


def find_coordinator(group_id: str) -> Build:
    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        return FindCoordinatorRequest(key=group_id)

    return build


def coordinator_in(response: FindCoordinatorResponse) -> tuple[int, Node]:
    found = response.coordinators[0] if response.coordinators else response
    return found.error_code, Node(found.node_id, found.host, found.port)


def join_group(
    settings: MembershipSettings,
    seat: Seat,
    instance_id: str | None,
    protocols: Sequence[tuple[str, bytes]],
    reason: str,
) -> Build:
    def build(version: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=seat.member_id,
            group_instance_id=instance_id,
            protocol_type=settings.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
            reason=reason[:LONGEST_REASON] if version >= 8 else None,
        )

    return build


def sync_group(
    settings: MembershipSettings,
    seat: Seat,
    instance_id: str | None,
    assignments: Mapping[str, bytes],
    asks: SyncExtensions | None,
) -> Build:
    def build(version: int) -> SyncGroupRequest:
        tags = asks if version >= FIRST_SYNC_WITH_TAGS else None
        return SyncGroupRequest(
            group_id=settings.group_id,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=instance_id,
            protocol_type=settings.protocol_type if version >= 5 else None,
            protocol_name=seat.protocol if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(member, share) for member, share in assignments.items()],
            wants_epoch=tags is not None,
            resync_from_epoch=NO_EPOCH if tags is None else tags.resync_from_epoch,
            failure=None if tags is None else tags.failure,
        )

    return build


def heartbeat(group_id: str, seat: Seat, instance_id: str | None) -> Build:
    return lambda _version: HeartbeatRequest(group_id, seat.generation, seat.member_id, instance_id)


def leave_group(group_id: str, member_id: str, instance_id: str | None, reason: str) -> Build:
    def build(version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id, member_id=member_id)
        cut = reason[:LONGEST_REASON] if version >= 5 else None
        return LeaveGroupRequest(group_id, members=[MemberIdentity(member_id, instance_id, cut)])

    return build


def offset_commit(
    group_id: str, seat: Seat, instance_id: str | None, offsets: Mapping[tuple[str, int], Offset]
) -> Build:
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
            generation_id_or_member_epoch=seat.generation,
            member_id=seat.member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )

    return build
