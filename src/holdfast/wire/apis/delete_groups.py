"""DeleteGroups: remove groups that have no members, with their offsets.

v2 is the first flexible version. v1 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DELETE_GROUPS = Api(42, "DeleteGroups", versions=(0, 2), flexible=2)


@request(DELETE_GROUPS)
class DeleteGroupsRequest:
    groups_names: list[str] = array(string())


@struct_type
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@response(DELETE_GROUPS)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
