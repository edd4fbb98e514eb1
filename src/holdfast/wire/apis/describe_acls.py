"""DescribeAcls: the access control lists that match a filter. v2 is the first flexible version; v3 adds users."""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_ACLS = Api(29, "DescribeAcls", versions=(1, 3), flexible=2)


@request(DESCRIBE_ACLS)
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


@struct_type
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct_type
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


@response(DESCRIBE_ACLS)
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
