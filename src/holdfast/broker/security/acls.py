"""Access control lists: who may do what to which topic, group, or to the cluster, by the rules of Kafka's authorizer.

A denial wins over every permission. Who may read, write, delete or alter may also describe; who may alter configs may
also describe them. A pattern is a name, the beginning of names, or `*` for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""What Kafka calls the one resource of its kind."""
ANY: Final = "*"
EVERYBODY: Final = "User:*"


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
"""What there is to be done to each kind of resource."""

_IMPLIED_BY: Final = {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}


def host_of(text: str) -> str:
    """An address as peers' addresses are written here, whichever of its spellings was used; raises ValueError.

    A peer with an IPv4 address that came through an IPv6 socket is the same peer.
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

    def concerns(self, principal: str, host: str) -> bool:
        return self.principal in (principal, EVERYBODY) and self.host in (host, ANY)

    def covers(self, name: str) -> bool:
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY)


class AclTable:
    """All lists of one moment. A question goes through those of its kind of resource: they are few, and written by
    hand; whoever asks often remembers the answer."""

    def __init__(
        self, acls: Iterable[Acl], super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._of_type: dict[ResourceType, list[Acl]] = {kind: [] for kind in ResourceType}
        for acl in acls:
            self._of_type[acl.resource_type].append(acl)
        self._super_users = frozenset(super_users)
        self._without_acl = allow_everyone_if_no_acl_found

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        covering = [acl for acl in self._of_type[kind] if acl.covers(name)]
        if not covering:
            return self._without_acl
        return _decide([acl for acl in covering if acl.concerns(principal, host)], operation)

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this kind to which it is allowed."""
        if principal in self._super_users:
            return True
        mine = [acl for acl in self._of_type[kind] if acl.concerns(principal, host)]
        denied = [acl for acl in mine if _denies(acl, operation)]
        if any(acl.name == ANY and acl.pattern_type is PatternType.LITERAL for acl in denied):
            return False
        if self._without_acl:
            return True  # a resource that nobody thought of is open
        allowing = _IMPLIED_BY.get(operation, frozenset({operation, Operation.ALL}))
        return any(
            acl.permission is Permission.ALLOW and acl.operation in allowing and not _all_of_it_is_denied(acl, denied)
            for acl in mine
        )


def _decide(mine: list[Acl], operation: Operation) -> bool:
    if any(_denies(acl, operation) for acl in mine):
        return False
    allowing = _IMPLIED_BY.get(operation, frozenset({operation, Operation.ALL}))
    return any(acl.permission is Permission.ALLOW and acl.operation in allowing for acl in mine)


def _denies(acl: Acl, operation: Operation) -> bool:
    return acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)


def _all_of_it_is_denied(allowed: Acl, denied: list[Acl]) -> bool:
    """Whether every name of the permission's pattern is forbidden. (`*` as a whole was looked at before.)"""
    if allowed.pattern_type is PatternType.LITERAL and allowed.name != ANY:
        return any(acl.covers(allowed.name) for acl in denied)
    if allowed.pattern_type is PatternType.PREFIXED:
        return any(acl.pattern_type is PatternType.PREFIXED and allowed.name.startswith(acl.name) for acl in denied)
    return any(acl.pattern_type is PatternType.PREFIXED and not acl.name for acl in denied)
