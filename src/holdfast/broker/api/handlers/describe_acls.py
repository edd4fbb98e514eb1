"""DescribeAcls: the ACLs of the users file. Without a users file, the response is that of a Kafka broker without an
authorizer."""

from __future__ import annotations

from typing import Final

from holdfast.broker.api.handlers._acl_filters import selects
from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.describe_acls import (
    DESCRIBE_ACLS,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."


@handler(DESCRIBE_ACLS)
def describe_acls(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:  # noqa: ARG001
    if services.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in services.authorizer.acls:
        if selects(request, acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(described)
    return DescribeAclsResponse(
        error_message=None, resources=[DescribeAclsResource(*resource, acls) for resource, acls in found.items()]
    )
