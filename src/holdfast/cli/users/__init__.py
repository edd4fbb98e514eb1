"""`holdfast users`: the users of a broker and their permissions, in the broker's users file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_command_group
from holdfast.cli.users import add, grant_revoke, list_users, remove

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_command_group(commands, "users", "edit a broker's users file")
    for command in (add, remove, list_users, grant_revoke):
        command.add_command(family)
