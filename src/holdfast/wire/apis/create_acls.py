"""CreateAcls: new access control lists. v2 is the first flexible version; v3 adds users."""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

CREATE_ACLS = Api(30, "CreateAcls", versions=(1, 3), flexible=2)


@struct_type
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@request(CREATE_ACLS)
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@struct_type
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@response(CREATE_ACLS)
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
