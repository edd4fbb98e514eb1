"""SyncGroup: the leader hands in everybody's assignment, each member receives its own.

v1 adds the throttle time, v3 the instance id (KIP-345); v4 is the first flexible version. v5 carries the protocol's
type and name both ways, so that a mismatch is noticed (KIP-559). v2 changed no field.
"""

from holdfast.wire.fields import array, blob, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

SYNC_GROUP = Api(14, "SyncGroup", versions=(0, 5), flexible=4)


@struct_type
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = blob()


@request(SYNC_GROUP)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@response(SYNC_GROUP)
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = blob()
