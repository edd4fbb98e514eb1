"""DeleteAcls: removes the ACLs that match the filters from the users file."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.broker.api.handlers._acl_filters import reject_unknown, selects
from holdfast.broker.api.handlers._edit_users import edit_users
from holdfast.broker.api.handlers.describe_acls import NO_AUTHORIZER
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.acls import Acl
from holdfast.broker.authorization.users_file import MAX_ACLS, Users
from holdfast.wire.apis.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode

MAX_FILTERS: Final = 1000
"""Filters in one request. Each is compared with every ACL; Kafka's own tool sends a few dozen."""


@handler(DELETE_ACLS)
async def delete_acls(services: Services, request: DeleteAclsRequest, context: RequestContext) -> object:
    if services.authorizer is None:
        return _refusal(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if len(request.filters) > MAX_FILTERS:
        return _refusal(request, ErrorCode.INVALID_REQUEST, f"a request has at most {MAX_FILTERS} filters")
    results: list[DeleteAclsFilterResult] = []

    def change(users: Users) -> Users:
        acls, deleted = sorted(users.acls), set[Acl]()
        results.extend(_delete(acls, wanted, deleted) for wanted in request.filters)
        return replace(users, acls=users.acls - deleted)

    try:
        return await edit_users(services, context, change, DeleteAclsResponse(filter_results=results))
    except PartialError as refused:
        return _refusal(request, refused.code, refused.message)


def _delete(acls: list[Acl], wanted: DeleteAclsFilter, deleted: set[Acl]) -> DeleteAclsFilterResult:
    """As in Kafka, an ACL that matches two filters is reported for both."""
    try:
        reject_unknown(wanted)
        selected = [acl for acl in acls if selects(wanted, acl)]
        if len(selected) + len(deleted) > MAX_ACLS:
            raise PartialError(ErrorCode.INVALID_REQUEST, f"one request deletes at most {MAX_ACLS} ACLs")
    except PartialError as refused:
        return DeleteAclsFilterResult(refused.code, refused.message)
    deleted.update(selected)
    return DeleteAclsFilterResult(ErrorCode.NONE, None, [_described(acl) for acl in selected])


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _refusal(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, message)] * len(request.filters))
