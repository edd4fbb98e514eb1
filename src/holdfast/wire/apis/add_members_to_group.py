"""AddMembersToGroup (Holdfast's own, KIP-469): registers static members that are about to join a group.

Its key in the ApiVersions response also tells a client that the broker supports Holdfast's tagged fields.
"""

from enum import IntEnum
from typing import Final

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

ADD_MEMBERS_TO_GROUP = Api(10_000, "AddMembersToGroup", versions=(0, 0), flexible=0)
DEFAULT_WAIT_MS: Final = 300_000


class Registration(IntEnum):
    """The result for one instance id, if there was no error."""

    REGISTERED = 0
    ALREADY_MEMBER = 1
    RENEWED = 2
    """It was already registered. The wait time of this request replaces the earlier one."""


@request(ADD_MEMBERS_TO_GROUP)
class AddMembersToGroupRequest:
    group_id: str = string()
    group_instance_ids: list[str] = array(string())
    wait_ms: int = int32(default=DEFAULT_WAIT_MS)


@struct_type
class AddMembersToGroupResult:
    group_instance_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    outcome: int = int8()
    """A `Registration`; ignored if there is an error."""


@response(ADD_MEMBERS_TO_GROUP)
class AddMembersToGroupResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    results: list[AddMembersToGroupResult] = array(AddMembersToGroupResult)
