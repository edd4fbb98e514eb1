"""The users file, read and written by one command at a time."""

from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed

if TYPE_CHECKING:
    from holdfast.broker.security.users import Users

VARIABLE: Final = "HOLDFAST_USERS_FILE"


def add_file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        default=os.environ.get(VARIABLE),
        required=VARIABLE not in os.environ,
        help=f"the broker's users.file (default: what {VARIABLE} says)",
    )


def read(options: argparse.Namespace) -> Users:
    from holdfast.broker.security.users import UsersFileError, read_users

    try:
        return read_users(Path(options.file))
    except UsersFileError as error:
        raise CommandFailed(str(error)) from None


def edit(options: argparse.Namespace, change: Callable[[Users], Users], *, create: bool = False) -> Users:
    """The file with the change; a broker that uses it notices within a second."""
    from holdfast.broker.security.users import Users, UsersFileError, read_users, write_users

    path = Path(options.file)
    try:
        with _alone(path):
            users = change(Users() if create and not path.exists() else read_users(path))
            write_users(path, users)
    except UsersFileError as error:
        raise CommandFailed(str(error)) from None
    return users


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two commands at the same time must not undo each other. The directory is locked: the file itself is replaced."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandFailed(f"cannot use the directory {path.parent}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
