"""DescribeAcls: the ACLs of the users file. Without one, the answer of a Kafka without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.security.acl_filters import selects
from holdfast.wire.apis.describe_acls import (
    DESCRIBE_ACLS,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

NO_AUTHORIZER: Final = "No Authorizer is configured."


@handles(DESCRIBE_ACLS)
def describe_acls(broker: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:  # noqa: ARG001
    if broker.users is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in broker.users.acls:
        if selects(request, acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(described)
    return DescribeAclsResponse(
        error_message=None, resources=[DescribeAclsResource(*resource, acls) for resource, acls in found.items()]
    )
