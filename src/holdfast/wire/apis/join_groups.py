"""JoinGroups (Holdfast's own): the members of one process join a group in one request.

Each entry has the fields of a JoinGroup v9 and gets the same response. The broker replies when all entries have their
response. Only joins are combined: each member sends SyncGroup, Heartbeat and other requests on its own connection.

An entry with neither a member id nor an instance id gets a member id to rejoin with (KIP-394). The other entries of the
request then get REBALANCE_IN_PROGRESS, and the client sends the whole batch again with the ids.
"""

from holdfast.wire.apis.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from holdfast.wire.fields import array, boolean, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

JOIN_GROUPS = Api(10_002, "JoinGroups", versions=(0, 0), flexible=0)
AS_JOIN_GROUP_VERSION = 9
"""The version of JoinGroup that every entry has."""


@struct_type
class JoinGroupsMember:
    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(nullable=0, default=None)


@request(JOIN_GROUPS)
class JoinGroupsRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32()
    protocol_type: str = string()
    members: list[JoinGroupsMember] = array(JoinGroupsMember)


@struct_type
class JoinGroupsResult:
    """The fields of JoinGroup's response; in the order of the request's members."""

    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(nullable=0, default=None)
    protocol_name: str | None = string(nullable=0, default=None)
    leader: str = string()
    skip_assignment: bool = boolean()
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@response(JOIN_GROUPS)
class JoinGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[JoinGroupsResult] = array(JoinGroupsResult)
