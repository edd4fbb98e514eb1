"""FindCoordinator: the broker that coordinates a group (key type 0), a transaction (1) or share groups (2).

v1 adds the key type, the throttle time and an error message; v3 is the first flexible version. v4 has several keys,
each with its own result (KIP-699), v6 supports share groups (KIP-932). v2 and v5 changed no field.
"""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

FIND_COORDINATOR = Api(10, "FindCoordinator", versions=(0, 6), flexible=3)


@request(FIND_COORDINATOR)
class FindCoordinatorRequest:
    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string(), since=4)


@struct_type
class FoundCoordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@response(FIND_COORDINATOR)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[FoundCoordinator] = array(FoundCoordinator, since=4)
