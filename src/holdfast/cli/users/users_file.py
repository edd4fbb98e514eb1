"""Reading and editing the users file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed

if TYPE_CHECKING:
    from holdfast.broker.authorization.users_file import Users

VARIABLE: Final = "HOLDFAST_USERS_FILE"


def add_file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        default=os.environ.get(VARIABLE),
        required=VARIABLE not in os.environ,
        help=f"the broker's users.file (default: {VARIABLE} in the environment)",
    )


def read(options: argparse.Namespace) -> Users:
    from holdfast.broker.authorization.users_file import UsersFileError, read_users

    try:
        return read_users(Path(options.file))
    except UsersFileError as error:
        raise CommandFailed(str(error)) from None


def edit(options: argparse.Namespace, change: Callable[[Users], Users], *, create: bool = False) -> Users:
    """The file with the change; a broker that uses it notices within a second."""
    from holdfast.broker.authorization.users_file import UsersFileError, edit_users

    try:
        return edit_users(Path(options.file), change, create=create)
    except UsersFileError as error:
        raise CommandFailed(str(error)) from None
