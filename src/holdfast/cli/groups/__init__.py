"""`holdfast groups`: who is in which group, how far behind, why it rebalanced; and an operator's levers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.groups import (
    add_members,
    cancel_registration,
    configure,
    delete,
    describe,
    history,
    listing,
    remove_members,
    reset_offsets,
    watch,
)
from holdfast.cli.parsing import add_family

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_family(commands, "groups", "see and mend consumer groups")
    of_members = (add_members, cancel_registration, remove_members)
    for command in (listing, describe, delete, *of_members, configure, reset_offsets, history, watch):
        command.add_command(family)
