"""CreateAcls: new ACLs in the users file. They are on disk, and in force, before they are answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._users_file import edit
from holdfast.broker.handlers.describe_acls import NO_AUTHORIZER
from holdfast.broker.security.acl_filters import acl_of
from holdfast.broker.security.acls import Acl
from holdfast.broker.security.users import MAX_ACLS, Users
from holdfast.wire.apis.create_acls import (
    CREATE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(CREATE_ACLS)
async def create_acls(broker: Broker, request: CreateAclsRequest, context: RequestContext) -> object:
    if broker.users is None:
        return _refusal(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results: list[AclCreationResult] = []

    def change(users: Users) -> Users:
        acls = set(users.acls)
        results.extend(_create_one(acls, creation) for creation in request.creations)
        return replace(users, acls=frozenset(acls))

    try:
        return await edit(broker, context, change, CreateAclsResponse(results=results))
    except Refused as refused:
        return _refusal(request, refused.code, refused.message)


def _create_one(acls: set[Acl], creation: AclCreation) -> AclCreationResult:
    try:
        acl = acl_of(creation)
        if acl not in acls and len(acls) >= MAX_ACLS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"there are {MAX_ACLS} ACLs already, the most that a broker keeps")
    except Refused as refused:
        return AclCreationResult(refused.code, refused.message)
    acls.add(acl)
    return AclCreationResult(ErrorCode.NONE, None)


def _refusal(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, message)] * len(request.creations))
