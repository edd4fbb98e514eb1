"""`holdfast users list`: users and their permissions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import add_command as add
from holdfast.cli.users.users_file import add_file_option, read

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "list",
        run,
        "list users and their permissions",
        ["holdfast users list --file users.json"],
        "A line for each right of each principal; passwords and their hashes are not shown.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_file_option(parser)


def run(options: argparse.Namespace) -> int:
    users = read(options)
    names = sorted({f"User:{name}" for name in users.credentials} | users.super_users)
    if options.json:
        print_json(
            {
                "users": [{"principal": name, "super_user": name in users.super_users} for name in names],
                "acls": [
                    {
                        "principal": acl.principal,
                        "permission": acl.permission.name,
                        "operation": acl.operation.name,
                        "resource_type": acl.resource_type.name,
                        "pattern_type": acl.pattern_type.name,
                        "name": acl.name,
                        "host": acl.host,
                    }
                    for acl in sorted(users.acls)
                ],
            }
        )
        return EXIT_OK
    rows: list[tuple[str, ...]] = [
        (
            acl.principal,
            acl.permission.name,
            acl.operation.name,
            acl.resource_type.name,
            acl.name + ("…" if acl.pattern_type.name == "PREFIXED" else ""),
            acl.host,
        )
        for acl in users.acls
    ]
    rows += [(name, "ALLOW", "everything", "", "", "") for name in users.super_users]
    with_rights = {row[0] for row in rows}
    rows += [(name, "", "", "", "", "") for name in names if name not in with_rights]
    print_table(("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "HOST"), sorted(rows))
    return EXIT_OK
