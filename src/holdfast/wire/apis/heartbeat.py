"""Heartbeat: a member says that it is alive and learns whether it must rejoin.

v1 adds the throttle time, v3 the instance id (KIP-345); v4 is the first flexible version.
"""

from holdfast.wire.fields import int16, int32, string
from holdfast.wire.message import Api, request, response

HEARTBEAT = Api(12, "Heartbeat", versions=(0, 4), flexible=4)


@request(HEARTBEAT)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


@response(HEARTBEAT)
class HeartbeatResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
