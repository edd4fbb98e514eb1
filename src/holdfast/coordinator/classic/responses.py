"""The responses of JoinGroup and SyncGroup, in the one shape that every version can carry."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Member
from holdfast.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode

FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_WITH_SKIP_ASSIGNMENT: Final = 9
NO_GENERATION: Final = -1


def join_error(code: ErrorCode, member_id: str, api_version: int) -> JoinGroupResponse:
    name = None if api_version >= FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=code, generation_id=NO_GENERATION, protocol_type=None, protocol_name=name, member_id=member_id
    )


def join_response(
    group: Group, member: Member, *, leader_id: str | None = None, with_members: bool = False, skip: bool = False
) -> JoinGroupResponse:
    """The current generation. `with_members` is for the leader, who has to assign."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.stored.protocol_name,
        leader=leader_id if leader_id is not None else group.leader_id or "",
        skip_assignment=skip,
        member_id=member.id,
        members=members_for_leader(group) if with_members else [],
    )


def members_for_leader(group: Group) -> list[JoinGroupResponseMember]:
    """All members of the generation, and so also static members that have not joined."""
    name = group.stored.protocol_name
    return [
        JoinGroupResponseMember(member.id, member.instance_id, member.metadata_for(name))
        for member in group.members.by_id.values()
    ]


def sync_error(code: ErrorCode, failure: AssignmentFailure | None = None) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, failure=failure)


def sync_response(group: Group, member: Member, *, with_epoch: bool = False) -> SyncGroupResponse:
    return assignment_response(group, member.assignment, with_epoch=with_epoch)


def assignment_response(group: Group, assignment: bytes, *, with_epoch: bool) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.stored.protocol_name,
        assignment=assignment,
        assignment_epoch=group.epoch if with_epoch else -1,
    )
