"""`holdfast users grant` and `holdfast users revoke`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed, UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import printable
from holdfast.cli.parsing import CommaList
from holdfast.cli.parsing import add_command as add
from holdfast.cli.users.users_file import add_file_option, edit

if TYPE_CHECKING:
    from holdfast.broker.authorization.acls import Acl
    from holdfast.broker.authorization.users_file import Users
    from holdfast.cli.parsing import Commands

_DETAILS: Final = """\
A consumer needs READ on its topics and on its group, a producer WRITE on its topics. READ, WRITE, DELETE and ALTER
imply DESCRIBE. A denial (--deny) overrides every permission. `*` matches every name.
"""


def add_command(commands: Commands) -> None:
    grant = add(
        commands,
        "grant",
        run_grant,
        "grant permissions to users",
        [
            "holdfast users grant --file users.json --user alice --topic orders --group billing --operation read",
            "holdfast users grant --file users.json --user bob --topic orders. --prefixed --operation write,create",
            "holdfast users grant --file users.json --user ops --cluster --operation describe",
        ],
        _DETAILS,
    )
    revoke = add(
        commands,
        "revoke",
        run_revoke,
        "revoke permissions",
        ["holdfast users revoke --file users.json --user alice --topic orders --operation read"],
        "Give the same options as for the grant; `holdfast users list` shows them.",
    )
    for parser in (grant, revoke):
        parser.add_argument(
            "--user", metavar="NAME", action="append", default=[], help="the user; may be repeated; * is every user"
        )
        parser.add_argument(
            "--principal",
            metavar="User:NAME",
            action="append",
            default=[],
            help="a principal, e.g. of a certificate: User:CN=…,O=…",
        )
        parser.add_argument(
            "--operation",
            metavar="OPERATION",
            action=CommaList,
            required=True,
            help="the operations, e.g. read,write, or all",
        )
        parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="the topic; may be repeated")
        parser.add_argument("--group", metavar="GROUP", action="append", default=[], help="the group; may be repeated")
        parser.add_argument("--cluster", action="store_true", help="the cluster")
        parser.add_argument("--prefixed", action="store_true", help="the names are prefixes")
        parser.add_argument("--deny", action="store_true", help="deny instead of allow")
        parser.add_argument("--host", metavar="ADDRESS", default="*", help="only from this address (default: any)")
        add_file_option(parser)


def run_grant(options: argparse.Namespace) -> int:
    wanted = _acls(options)

    def change(users: Users) -> Users:
        for name in options.user:
            if name != "*" and name not in users.credentials:
                raise CommandFailed(f"there is no user {name!r} in {options.file}: `holdfast users add` first")
        return replace(users, acls=users.acls | wanted)

    edit(options, change)
    return _print_result(wanted, "")


def run_revoke(options: argparse.Namespace) -> int:
    wanted = _acls(options)

    def change(users: Users) -> Users:
        missing = wanted - users.acls
        if missing:
            raise CommandFailed(f"this was never granted: {_sentence(min(missing))}")
        return replace(users, acls=users.acls - wanted)

    edit(options, change)
    return _print_result(wanted, "revoked: ")


def _acls(options: argparse.Namespace) -> frozenset[Acl]:
    from holdfast.broker.authorization.acls import (
        CLUSTER_NAME,
        OPERATIONS,
        Acl,
        Operation,
        PatternType,
        Permission,
        normalize_host,
    )
    from holdfast.broker.authorization.acls import ResourceType as Kind

    principals = [*options.principal, *(f"User:{name}" for name in options.user)]
    resources = [(Kind.TOPIC, name) for name in options.topic] + [(Kind.GROUP, name) for name in options.group]
    resources += [(Kind.CLUSTER, CLUSTER_NAME)] if options.cluster else []
    if not principals or not resources:
        raise UsageError("give a user (--user or --principal) and a resource (--topic, --group or --cluster)")
    for principal in principals:
        if not principal.startswith("User:") or len(principal) == len("User:"):
            raise UsageError(f"{principal!r} is not a principal: User:NAME")
    try:
        host = normalize_host(options.host)
    except ValueError as error:
        raise UsageError(f"--host: {error}") from None
    acls = set()
    for word in options.operation:
        name = word.upper().replace("-", "_")
        if name not in Operation.__members__:
            raise UsageError(
                f"{word!r} is not an operation; there are {', '.join(one.name.lower() for one in Operation)}"
            )
        operation = Operation[name]
        for kind, resource in resources:
            if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
                raise UsageError(f"{operation.name} is not an operation on a {kind.name.lower()}")
            prefixed = options.prefixed and kind is not Kind.CLUSTER
            pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
            permission = Permission.DENY if options.deny else Permission.ALLOW
            acls |= {Acl(one, kind, resource, operation, pattern, permission, host) for one in principals}
    return frozenset(acls)


def _print_result(acls: frozenset[Acl], before: str) -> int:
    for acl in sorted(acls):
        print(f"{before}{_sentence(acl)}")
    return EXIT_OK


def _sentence(acl: Acl) -> str:
    may = "may" if acl.permission.name == "ALLOW" else "may not"
    names = f"{printable(acl.name)}…" if acl.pattern_type.name == "PREFIXED" else printable(acl.name)
    where = "" if acl.host == "*" else f" from {printable(acl.host)}"
    return f"{printable(acl.principal)} {may} {acl.operation.name} {acl.resource_type.name} {names}{where}"
