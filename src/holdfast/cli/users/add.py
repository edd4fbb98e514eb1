"""`holdfast users add`: add a user, or change a password."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.errors import CommandFailed, UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import printable
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import whole_number
from holdfast.cli.users.users_file import add_file_option, edit

if TYPE_CHECKING:
    from holdfast.broker.authorization.users_file import Users
    from holdfast.cli.parsing import Commands

_DETAILS = """\
The command prompts for the password on a terminal, or reads it from the first line of stdin or of --password-file.
Only salted hashes of it are stored. If the users file does not exist, it is created and readable by its owner only.
If the user exists, the password is changed, and clients that used the old one are disconnected.
"""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "add",
        run,
        "add a user, or change a password",
        [
            "holdfast users add --file users.json --user alice",
            "holdfast users add --file users.json --user admin --super-user < password.txt",
        ],
        _DETAILS,
    )
    parser.add_argument(
        "--user", metavar="NAME", required=True, help="the user name; the principal in ACLs is User:NAME"
    )
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="a file whose first line is the password")
    parser.add_argument("--super-user", action="store_true", help="allow every operation")
    parser.add_argument(
        "--iterations",
        metavar="N",
        type=whole_number(4096),
        help="iterations of the SCRAM hashes (default: 16384, Kafka's maximum)",
    )
    add_file_option(parser)


def run(options: argparse.Namespace) -> int:
    from holdfast.broker.authorization.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS

    iterations = options.iterations or DEFAULT_ITERATIONS
    if iterations > MAX_ITERATIONS:
        raise UsageError(f"--iterations {iterations} is more than {MAX_ITERATIONS}, which clients refuse")
    password = _password(options)
    known: list[str] = []

    def change(users: Users) -> Users:
        known.extend(users.credentials)
        changed = users.with_user(options.user, password, iterations)
        if options.super_user:
            changed = replace(changed, super_users=changed.super_users | {f"User:{options.user}"})
        return changed

    edit(options, change, create=True)
    print(f"{printable(options.user)}: {'has a new password' if options.user in known else 'added'}")
    return EXIT_OK


def _password(options: argparse.Namespace) -> str:
    if options.password_file is not None:
        try:
            text = options.password_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CommandFailed(f"cannot read the password in {options.password_file}: {reason}") from None
        password = str(text).partition("\n")[0]
    elif sys.stdin.isatty():
        password = _asked()
    else:
        password = sys.stdin.readline().removesuffix("\n")
    password = password.removesuffix("\r")
    if not password or "\0" in password:
        raise CommandFailed("the password is empty, or has a null character")
    return password


def _asked() -> str:
    from getpass import getpass

    try:
        password, again = getpass("password: "), getpass("again: ")
    except EOFError:  # Ctrl-D
        raise CommandFailed("no password was given") from None
    if again != password:
        raise CommandFailed("that was not the same password")
    return password
