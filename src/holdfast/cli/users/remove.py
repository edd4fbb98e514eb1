"""`holdfast users remove`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.errors import CommandFailed
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import printable
from holdfast.cli.parsing import add_command as add
from holdfast.cli.users.users_file import add_file_option, edit

if TYPE_CHECKING:
    from holdfast.broker.authorization.users_file import Users
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "remove",
        run,
        "remove users and their permissions",
        ["holdfast users remove --file users.json --user alice"],
        "Their clients are disconnected.",
    )
    parser.add_argument("--user", metavar="NAME", action="append", required=True, help="the user; may be repeated")
    add_file_option(parser)


def run(options: argparse.Namespace) -> int:
    def change(users: Users) -> Users:
        for name in options.user:
            if name not in users.credentials:
                raise CommandFailed(f"there is no user {name!r} in {options.file}")
            users = users.without_user(name)
        return users

    edit(options, change)
    for name in options.user:
        print(f"{printable(name)}: removed")
    return EXIT_OK
