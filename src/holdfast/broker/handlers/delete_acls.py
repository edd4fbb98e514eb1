"""DeleteAcls: refused. ACLs are in the users file, which its owner edits, with `holdfast users`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers.describe_acls import NO_AUTHORIZER
from holdfast.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DELETE_ACLS)
def delete_acls(broker: Broker, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:  # noqa: ARG001
    advice = "ACLs are in the broker's users file: `holdfast users revoke` changes them"
    message = NO_AUTHORIZER if broker.users is None else advice
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, message)] * len(request.filters)
    )
