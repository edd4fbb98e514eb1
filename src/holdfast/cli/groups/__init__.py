"""`holdfast groups`: members, lag, history and administration of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.groups import (
    add_members,
    cancel_registration,
    configure,
    delete,
    describe,
    history,
    list_groups,
    remove_members,
    reset_offsets,
    watch,
)
from holdfast.cli.parsing import add_command_group

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_command_group(commands, "groups", "show and manage consumer groups")
    of_members = (add_members, cancel_registration, remove_members)
    for command in (list_groups, describe, delete, *of_members, configure, reset_offsets, history, watch):
        command.add_command(family)
