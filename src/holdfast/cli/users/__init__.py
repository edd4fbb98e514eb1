"""`holdfast users`: who may come in to a broker, and what each may do; in the broker's users file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_family
from holdfast.cli.users import add, granting, listing, remove

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_family(commands, "users", "edit a broker's users file")
    for command in (add, remove, listing, granting):
        command.add_command(family)
