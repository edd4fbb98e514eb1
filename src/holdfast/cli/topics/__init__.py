"""`holdfast topics`: create, describe and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_command_group
from holdfast.cli.topics import add_partitions, create, delete, describe, list_topics

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_command_group(commands, "topics", "create, show and delete topics")
    for command in (create, list_topics, describe, delete, add_partitions):
        command.add_command(family)
