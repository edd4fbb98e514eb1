"""JoinGroup: joins or rejoins a group. The response contains the new generation when all members have joined.

v0 has one timeout for session and rebalance, v1 has two. v2 adds the throttle time; from v4 on a new member first gets
an error with the id to join with (KIP-394). v5 adds the instance id (KIP-345); v6 is the first flexible version. v7
returns the protocol's type and may have a null name (KIP-559), v8 adds the member's reason for joining (KIP-800), v9
lets a returning leader keep the current assignment (KIP-814). v3 changed no field.
"""

from holdfast.wire.fields import array, blob, boolean, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

JOIN_GROUP = Api(11, "JoinGroup", versions=(0, 9), flexible=6)


@struct_type
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = blob()


@request(JOIN_GROUP)
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None, ignorable=True)


@struct_type
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    metadata: bytes = blob()


@response(JOIN_GROUP)
class JoinGroupResponse:
    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
