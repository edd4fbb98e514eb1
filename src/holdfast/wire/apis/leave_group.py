"""LeaveGroup: members leave, or an administrator removes them.

v1 adds the throttle time; v3 has several members, each with its instance id and its own result (KIP-345); v4 is the
first flexible version. v5 adds a reason per member (KIP-800). v2 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

LEAVE_GROUP = Api(13, "LeaveGroup", versions=(0, 5), flexible=4)


@struct_type
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    reason: str | None = string(since=5, nullable=5, default=None, ignorable=True)


@request(LEAVE_GROUP)
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@struct_type
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable=0)
    error_code: int = int16()


@response(LEAVE_GROUP)
class LeaveGroupResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
