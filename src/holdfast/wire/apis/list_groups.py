"""ListGroups: the groups that this broker coordinates.

v1 adds the throttle time; v3 is the first flexible version. v4 can filter by state and returns it (KIP-518), v5 does
the same for the group's type (KIP-848). v2 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

LIST_GROUPS = Api(16, "ListGroups", versions=(0, 5), flexible=3)


@request(LIST_GROUPS)
class ListGroupsRequest:
    states_filter: list[str] = array(string(), since=4)
    types_filter: list[str] = array(string(), since=5)


@struct_type
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)
    group_type: str = string(since=5, ignorable=True)


@response(LIST_GROUPS)
class ListGroupsResponse:
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
