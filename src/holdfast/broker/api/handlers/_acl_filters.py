"""ACLs in requests: filters (DescribeAcls, DeleteAcls) and ACLs to create (CreateAcls)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol, TypeVar

from holdfast.broker.api.replies import PartialError
from holdfast.broker.authorization.acls import (
    ANY,
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    normalize_host,
)
from holdfast.wire.error_codes import ErrorCode

ANY_KIND: Final = 1
"""In a filter, matches every value."""
MATCH: Final = 2
"""In a filter of patterns, matches every pattern that covers the name."""
_LAST_RESOURCE_TYPE: Final = 7
_LAST_OPERATION: Final = 15
"""Kafka has resource types (delegation tokens, users) and operations (on tokens, two-phase commit) that do not exist
here. A filter may name them; it selects nothing."""

E = TypeVar("E", bound=IntEnum)


class AclFilter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclToCreate(Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def selects(wanted: AclFilter, acl: Acl) -> bool:
    return (
        wanted.resource_type_filter in (ANY_KIND, acl.resource_type)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY_KIND, acl.operation)
        and wanted.permission_type in (ANY_KIND, acl.permission)
        and _selects_pattern(wanted, acl)
    )


def _selects_pattern(wanted: AclFilter, acl: Acl) -> bool:
    name = wanted.resource_name_filter
    if wanted.pattern_type_filter == MATCH:
        return name is None or acl.covers(name) or (acl.pattern_type is PatternType.LITERAL and name == ANY == acl.name)
    return wanted.pattern_type_filter in (ANY_KIND, acl.pattern_type) and name in (None, acl.name)


def reject_unknown(wanted: AclFilter) -> None:
    """Raises PartialError for a filter with numbers that Kafka does not define: a deletion must not depend on a
    guess."""
    if not (
        1 <= wanted.resource_type_filter <= _LAST_RESOURCE_TYPE
        and 1 <= wanted.pattern_type_filter <= PatternType.PREFIXED
    ):
        raise PartialError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not (1 <= wanted.operation <= _LAST_OPERATION and 1 <= wanted.permission_type <= Permission.ALLOW):
        raise PartialError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


def to_acl(wanted: AclToCreate) -> Acl:
    """The ACL that a client wants to create. Raises PartialError. The checks are in Kafka's order."""
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not wanted.resource_name:
        raise _invalid("Invalid empty resource name")
    pattern_type = _known(PatternType, wanted.resource_pattern_type, "patternType")
    resource_type = _known(ResourceType, wanted.resource_type, "resourceType")
    operation = _known(Operation, wanted.operation, "operation")
    permission = _known(Permission, wanted.permission_type, "permissionType")
    kind, _, name = wanted.principal.partition(":")
    if kind != "User" or not name:
        raise _invalid(f"{wanted.principal[:100]!r} is not a principal of this broker: User:NAME")
    if operation is not Operation.ALL and operation not in OPERATIONS[resource_type]:
        raise _invalid(f"{operation.name} does not apply to a {resource_type.name}")
    try:
        host = normalize_host(wanted.host)
    except ValueError as error:
        raise _invalid(str(error)) from None
    return Acl(wanted.principal, resource_type, wanted.resource_name, operation, pattern_type, permission, host)


def _known(kind: type[E], number: int, name: str) -> E:
    try:
        return kind(number)
    except ValueError:
        raise _invalid(
            f"Invalid {name} {number}: here are {', '.join(f'{one.name} ({one})' for one in kind)}"
        ) from None


def _invalid(message: str) -> PartialError:
    return PartialError(ErrorCode.INVALID_REQUEST, message)
