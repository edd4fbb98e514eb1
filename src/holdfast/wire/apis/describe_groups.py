"""DescribeGroups: state, protocol and members of groups.

v1 adds the throttle time, v3 authorized operations (KIP-430), v4 the members' instance ids (KIP-345); v5 is the first
flexible version. v6 returns an error for a group that does not exist, which earlier versions describe as Dead
(KIP-1043). v2 changed no field.

The tagged fields from 10000 on are Holdfast's own. A request has them only if the broker advertised key 10000, a
response only if its request had one.
"""

from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, array, blob, boolean, int16, int32, int64, string, struct
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_GROUPS = Api(15, "DescribeGroups", versions=(0, 6), flexible=5)


@request(DESCRIBE_GROUPS)
class DescribeGroupsRequest:
    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean(since=3)
    include_extensions: bool = boolean(since=5, tag=10_000, ignorable=True)


@struct_type
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


@struct_type
class ExpectedMember:
    """A registered static member (AddMembersToGroup)."""

    group_instance_id: str = string()
    deadline_ms: int = int64()
    """When its registration expires, in milliseconds of the wall clock."""
    arrived: bool = boolean()
    """It is in the group and waits for the others."""


@struct_type
class GroupExtensions:
    """Holdfast's additional state of a group."""

    generation_id: int = int32()
    assignment_epoch: int = int64()
    leader: str = string()
    settled: bool = boolean()
    """Every member has its assignment, and no partition is moving from one member to another."""
    target_size: int = int32()
    """Members beyond it are standbys; 0 if there is no target."""
    standby_takeover_ms: int = int32(default=-1)
    standbys: list[str] = array(string())
    """The ids of members without an assignment: standbys, and registered members that arrived before the others."""
    expected: list[ExpectedMember] = array(ExpectedMember)
    vacancies: int = int32()
    """Assignments of lost members that standbys are asked to take over."""


@struct_type
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string(since=6, nullable=6, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=OPERATIONS_NOT_REQUESTED)
    extensions: GroupExtensions | None = struct(GroupExtensions, since=5, tag=10_000, ignorable=True)


@response(DESCRIBE_GROUPS)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
