"""The responses of JoinGroup and SyncGroup, in the one shape that every version can carry."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.group import Group
from holdfast.coordinator.members import Member
from holdfast.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode

FIRST_WITH_NULL_PROTOCOL: Final = 7
NO_GENERATION: Final = -1


def join_error(code: ErrorCode, member_id: str, api_version: int) -> JoinGroupResponse:
    name = None if api_version >= FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=code, generation_id=NO_GENERATION, protocol_type=None, protocol_name=name, member_id=member_id
    )


def joined(
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
    """Whom the leader sees: everybody, also the static members that are away (a seam for those who only wait)."""
    name = group.stored.protocol_name
    return [
        JoinGroupResponseMember(member.id, member.instance_id, member.metadata_for(name)) for member in group.roster
    ]


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.stored.protocol_name,
        assignment=member.assignment,
    )
