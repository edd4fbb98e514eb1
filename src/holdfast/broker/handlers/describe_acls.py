"""DescribeAcls: the ACLs of the users file. Without one, the answer of a Kafka without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.security.acls import ANY, Acl, PatternType
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
ANY_KIND: Final = 1
"""In a filter: whatever it is."""
MATCH: Final = 2
"""In a filter of patterns: every one that covers the name."""


@handles(DESCRIBE_ACLS)
def describe_acls(broker: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:  # noqa: ARG001
    if broker.users is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in sorted(broker.users.acls):
        if _fits(request, acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(described)
    return DescribeAclsResponse(
        error_message=None, resources=[DescribeAclsResource(*resource, acls) for resource, acls in found.items()]
    )


def _fits(wanted: DescribeAclsRequest, acl: Acl) -> bool:
    return (
        wanted.resource_type_filter in (ANY_KIND, acl.resource_type)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY_KIND, acl.operation)
        and wanted.permission_type in (ANY_KIND, acl.permission)
        and _fits_pattern(wanted, acl)
    )


def _fits_pattern(wanted: DescribeAclsRequest, acl: Acl) -> bool:
    name = wanted.resource_name_filter
    if wanted.pattern_type_filter == MATCH:
        return name is None or acl.covers(name) or (acl.pattern_type is PatternType.LITERAL and name == ANY == acl.name)
    return wanted.pattern_type_filter in (ANY_KIND, acl.pattern_type) and name in (None, acl.name)
