"""`holdfast topics`: make, see and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_family
from holdfast.cli.topics import add_partitions, create, delete, describe, listing

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_family(commands, "topics", "make, see and delete topics")
    for command in (create, listing, describe, delete, add_partitions):
        command.add_command(family)
