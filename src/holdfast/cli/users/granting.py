"""`holdfast users grant` and `holdfast users revoke`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed, UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import shown
from holdfast.cli.parsing import CommaList
from holdfast.cli.parsing import add_command as add
from holdfast.cli.users.file import add_file_option, edit

if TYPE_CHECKING:
    from holdfast.broker.security.acls import Acl
    from holdfast.broker.security.users import Users
    from holdfast.cli.parsing import Commands

_DETAILS: Final = """\
A consumer needs READ on its topics and on its group, a producer WRITE on its topics. Whoever may read, write, delete or
alter may also describe. A denial (--deny) wins over every permission. `*` is every name.
"""


def add_command(commands: Commands) -> None:
    grant = add(
        commands,
        "grant",
        run_grant,
        "let users do something",
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
        "take back what was granted",
        ["holdfast users revoke --file users.json --user alice --topic orders --operation read"],
        "What is taken back is named as it was granted; `holdfast users list` shows it.",
    )
    for parser in (grant, revoke):
        parser.add_argument(
            "--user", metavar="NAME", action="append", default=[], help="may be repeated; * is everybody"
        )
        parser.add_argument(
            "--principal", metavar="User:NAME", action="append", default=[], help="of a certificate: User:CN=…,O=…"
        )
        parser.add_argument(
            "--operation", metavar="OPERATION", action=CommaList, required=True, help="e.g. read,write; all"
        )
        parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="may be repeated")
        parser.add_argument("--group", metavar="GROUP", action="append", default=[], help="may be repeated")
        parser.add_argument("--cluster", action="store_true", help="the broker as a whole")
        parser.add_argument("--prefixed", action="store_true", help="names that begin so")
        parser.add_argument("--deny", action="store_true", help="a denial, not a permission")
        parser.add_argument("--host", metavar="ADDRESS", default="*", help="only from there (default: from everywhere)")
        add_file_option(parser)


def run_grant(options: argparse.Namespace) -> int:
    wanted = _acls(options)

    def change(users: Users) -> Users:
        for name in options.user:
            if name != "*" and name not in users.credentials:
                raise CommandFailed(f"there is no user {name!r} in {options.file}: `holdfast users add` first")
        return replace(users, acls=users.acls | wanted)

    edit(options, change)
    return _report(wanted, "")


def run_revoke(options: argparse.Namespace) -> int:
    wanted = _acls(options)

    def change(users: Users) -> Users:
        missing = wanted - users.acls
        if missing:
            raise CommandFailed(f"this was never granted: {_sentence(min(missing))}")
        return replace(users, acls=users.acls - wanted)

    edit(options, change)
    return _report(wanted, "not any more: ")


def _acls(options: argparse.Namespace) -> frozenset[Acl]:
    from holdfast.broker.security.acls import CLUSTER_NAME, OPERATIONS, Acl, Operation, PatternType, Permission, host_of
    from holdfast.broker.security.acls import ResourceType as Kind

    principals = [*options.principal, *(f"User:{name}" for name in options.user)]
    resources = [(Kind.TOPIC, name) for name in options.topic] + [(Kind.GROUP, name) for name in options.group]
    resources += [(Kind.CLUSTER, CLUSTER_NAME)] if options.cluster else []
    if not principals or not resources:
        raise UsageError("say to whom (--user or --principal) and to what (--topic, --group or --cluster)")
    for principal in principals:
        if not principal.startswith("User:") or len(principal) == len("User:"):
            raise UsageError(f"{principal!r} is not a principal: User:NAME")
    try:
        host = host_of(options.host)
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
                raise UsageError(f"{operation.name} is nothing that can be done to a {kind.name.lower()}")
            prefixed = options.prefixed and kind is not Kind.CLUSTER
            pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
            permission = Permission.DENY if options.deny else Permission.ALLOW
            acls |= {Acl(one, kind, resource, operation, pattern, permission, host) for one in principals}
    return frozenset(acls)


def _report(acls: frozenset[Acl], before: str) -> int:
    for acl in sorted(acls):
        print(f"{before}{_sentence(acl)}")
    return EXIT_OK


def _sentence(acl: Acl) -> str:
    may = "may" if acl.permission.name == "ALLOW" else "may not"
    names = f"{shown(acl.name)}…" if acl.pattern_type.name == "PREFIXED" else shown(acl.name)
    where = "" if acl.host == "*" else f" from {shown(acl.host)}"
    return f"{shown(acl.principal)} {may} {acl.operation.name} {acl.resource_type.name} {names}{where}"
