"""`holdfast users remove`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.errors import CommandFailed
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import shown
from holdfast.cli.parsing import add_command as add
from holdfast.cli.users.file import add_file_option, edit

if TYPE_CHECKING:
    from holdfast.broker.security.users import Users
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "remove",
        run,
        "remove users with all that was granted to them",
        ["holdfast users remove --file users.json --user alice"],
        "Whoever is connected as one of them is disconnected.",
    )
    parser.add_argument("--user", metavar="NAME", action="append", required=True, help="may be repeated")
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
        print(f"{shown(name)}: removed")
    return EXIT_OK
