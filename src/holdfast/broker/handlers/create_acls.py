"""CreateAcls: refused. ACLs are in the users file, which its owner edits, with `holdfast users`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers.describe_acls import NO_AUTHORIZER
from holdfast.wire.apis.create_acls import CREATE_ACLS, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(CREATE_ACLS)
def create_acls(broker: Broker, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:  # noqa: ARG001
    advice = "ACLs are in the broker's users file: `holdfast users grant` changes them"
    message = NO_AUTHORIZER if broker.users is None else advice
    return CreateAclsResponse(
        results=[AclCreationResult(ErrorCode.SECURITY_DISABLED, message)] * len(request.creations)
    )
