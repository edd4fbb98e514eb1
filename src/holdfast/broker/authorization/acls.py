"""Access control lists, with the rules of Kafka's authorizer.

A denial overrides every permission. READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies
DESCRIBE_CONFIGS. A pattern is a name, a prefix of names, or `*` for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""Kafka's name for the only resource of this type."""
ANY: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"


class ResourceType(IntEnum):
    """The numbers are Kafka's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


_R, _O = ResourceType, Operation
OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    _R.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    _R.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    _R.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    _R.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
"""The operations that apply to each type of resource."""

_IMPLIED_BY: Final = {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


def normalize_host(text: str) -> str:
    """The canonical form of an address; raises ValueError.

    An IPv4 peer on an IPv6 socket has its IPv4 address.
    """
    if text == ANY:
        return ANY
    try:
        found = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address of one host, nor {ANY} for all of them") from None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    principal: str
    resource_type: ResourceType
    name: str
    operation: Operation
    pattern_type: PatternType = PatternType.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = ANY

    def applies_to(self, principal: str, host: str) -> bool:
        return self.principal in (principal, WILDCARD_PRINCIPAL) and self.host in (host, ANY)

    def covers(self, name: str) -> bool:
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY)


class AclTable:
    """An immutable snapshot of all ACLs. A query scans those of its resource type, which are few, and `Authorizer`
    caches the decisions."""

    def __init__(
        self, acls: Iterable[Acl], super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._of_type: dict[ResourceType, list[Acl]] = {kind: [] for kind in ResourceType}
        for acl in acls:
            self._of_type[acl.resource_type].append(acl)
        self._super_users = frozenset(super_users)
        self._allowed_without_acl = allow_everyone_if_no_acl_found

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        covering = [acl for acl in self._of_type[kind] if acl.covers(name)]
        if not covering:
            return self._allowed_without_acl
        return _decide([acl for acl in covering if acl.applies_to(principal, host)], operation)

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation may be allowed on some resource of this type."""
        if principal in self._super_users:
            return True
        mine = [acl for acl in self._of_type[kind] if acl.applies_to(principal, host)]
        denied = [acl for acl in mine if _denies(acl, operation)]
        if any(acl.name == ANY and acl.pattern_type is PatternType.LITERAL for acl in denied):
            return False
        if self._allowed_without_acl:
            return True  # resources without any ACL are open
        allowing = _IMPLIED_BY.get(operation, frozenset({operation, Operation.ALL}))
        return any(
            acl.permission is Permission.ALLOW and acl.operation in allowing and not _is_fully_denied(acl, denied)
            for acl in mine
        )


def _decide(mine: list[Acl], operation: Operation) -> bool:
    if any(_denies(acl, operation) for acl in mine):
        return False
    allowing = _IMPLIED_BY.get(operation, frozenset({operation, Operation.ALL}))
    return any(acl.permission is Permission.ALLOW and acl.operation in allowing for acl in mine)


def _denies(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)


def _is_fully_denied(allowed: Acl, denied: list[Acl]) -> bool:
    """Whether every name of the permission's pattern is denied. (`*` as a whole was checked before.)"""
    if allowed.pattern_type is PatternType.LITERAL and allowed.name != ANY:
        return any(acl.covers(allowed.name) for acl in denied)
    if allowed.pattern_type is PatternType.PREFIXED:
        return any(acl.pattern_type is PatternType.PREFIXED and allowed.name.startswith(acl.name) for acl in denied)
    return any(acl.pattern_type is PatternType.PREFIXED and not acl.name for acl in denied)
