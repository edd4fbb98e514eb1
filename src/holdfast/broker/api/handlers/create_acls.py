"""CreateAcls: adds ACLs to the users file. They are on disk and in force before the reply."""

from __future__ import annotations

from dataclasses import replace

from holdfast.broker.api.handlers._acl_filters import to_acl
from holdfast.broker.api.handlers._edit_users import edit_users
from holdfast.broker.api.handlers.describe_acls import NO_AUTHORIZER
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.acls import Acl
from holdfast.broker.authorization.users_file import MAX_ACLS, Users
from holdfast.wire.apis.create_acls import (
    CREATE_ACLS,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode


@handler(CREATE_ACLS)
async def create_acls(services: Services, request: CreateAclsRequest, context: RequestContext) -> object:
    if services.authorizer is None:
        return _refusal(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results: list[AclCreationResult] = []

    def change(users: Users) -> Users:
        acls = set(users.acls)
        results.extend(_create_one(acls, creation) for creation in request.creations)
        return replace(users, acls=frozenset(acls))

    try:
        return await edit_users(services, context, change, CreateAclsResponse(results=results))
    except PartialError as refused:
        return _refusal(request, refused.code, refused.message)


def _create_one(acls: set[Acl], creation: AclCreation) -> AclCreationResult:
    try:
        acl = to_acl(creation)
        if acl not in acls and len(acls) >= MAX_ACLS:
            raise PartialError(ErrorCode.INVALID_REQUEST, f"there are {MAX_ACLS} ACLs already, which is the limit")
    except PartialError as refused:
        return AclCreationResult(refused.code, refused.message)
    acls.add(acl)
    return AclCreationResult(ErrorCode.NONE, None)


def _refusal(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, message)] * len(request.creations))
