"""SyncGroup: the leader sends the assignments of all members, and each member receives its own.

v1 adds the throttle time, v3 the instance id (KIP-345); v4 is the first flexible version. v5 carries the protocol's
type and name both ways, so that a mismatch is noticed (KIP-559). v2 changed no field.

The tagged fields from 10000 on are Holdfast's own. A request has them only if the broker advertised key 10000, a
response only if its request had one.
"""

from holdfast.wire.fields import array, blob, boolean, int16, int32, int64, string, struct
from holdfast.wire.message import Api, request, response, struct_type

SYNC_GROUP = Api(14, "SyncGroup", versions=(0, 5), flexible=4)


@struct_type
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = blob()


@struct_type
class AssignmentFailure:
    """Why there is no assignment."""

    code: int = int16()
    """The assignor's own code, which the coordinator does not interpret."""
    message: str = string()


@request(SYNC_GROUP)
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
    wants_epoch: bool = boolean(since=4, tag=10_000, ignorable=True)
    """The member requests the assignment epoch."""
    resync_from_epoch: int = int64(since=4, tag=10_001, default=-1)
    """The leader extends assignments within the generation. The request has the epoch on which it is based, and
    `assignments` contains the members whose assignment grows, with all of their partitions."""
    failure: AssignmentFailure | None = struct(AssignmentFailure, since=4, tag=10_002)
    """The leader could not assign."""


@response(SYNC_GROUP)
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = blob()
    assignment_epoch: int = int64(since=4, tag=10_000, default=-1, ignorable=True)
    """The fencing token, which increases with every change of ownership."""
    failure: AssignmentFailure | None = struct(AssignmentFailure, since=4, tag=10_001, ignorable=True)
    """With REBALANCE_IN_PROGRESS: why the generation that the member waited for failed."""
