"""DeleteAcls: takes the ACLs that filters select out of the users file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._users_file import edit
from holdfast.broker.handlers.describe_acls import NO_AUTHORIZER
from holdfast.broker.security.acl_filters import refuse_unknown, selects
from holdfast.broker.security.acls import Acl
from holdfast.broker.security.users import MAX_ACLS, Users
from holdfast.wire.apis.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

MAX_FILTERS: Final = 1000
"""Of one request. Each is compared with every ACL; Kafka's own tool sends a few dozen."""


@handles(DELETE_ACLS)
async def delete_acls(broker: Broker, request: DeleteAclsRequest, context: RequestContext) -> object:
    if broker.users is None:
        return _refusal(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if len(request.filters) > MAX_FILTERS:
        return _refusal(request, ErrorCode.INVALID_REQUEST, f"a request has at most {MAX_FILTERS} filters")
    results: list[DeleteAclsFilterResult] = []

    def change(users: Users) -> Users:
        acls, deleted = sorted(users.acls), set[Acl]()
        results.extend(_delete(acls, wanted, deleted) for wanted in request.filters)
        return replace(users, acls=users.acls - deleted)

    try:
        return await edit(broker, context, change, DeleteAclsResponse(filter_results=results))
    except Refused as refused:
        return _refusal(request, refused.code, refused.message)


def _delete(acls: list[Acl], wanted: DeleteAclsFilter, deleted: set[Acl]) -> DeleteAclsFilterResult:
    """An ACL that two filters select is reported with both, as by Kafka."""
    try:
        refuse_unknown(wanted)
        selected = [acl for acl in acls if selects(wanted, acl)]
        if len(selected) + len(deleted) > MAX_ACLS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"one request deletes at most {MAX_ACLS} ACLs")
    except Refused as refused:
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
