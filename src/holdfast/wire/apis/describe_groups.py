"""DescribeGroups: state, protocol and members of groups.

v1 adds the throttle time, v3 authorized operations (KIP-430), v4 the members' instance ids (KIP-345); v5 is the first
flexible version. v6 says that a group does not exist, where earlier versions show it as Dead (KIP-1043). v2 changed no
field.
"""

from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, array, blob, boolean, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_GROUPS = Api(15, "DescribeGroups", versions=(0, 6), flexible=5)


@request(DESCRIBE_GROUPS)
class DescribeGroupsRequest:
    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean(since=3)


@struct_type
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


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


@response(DESCRIBE_GROUPS)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
