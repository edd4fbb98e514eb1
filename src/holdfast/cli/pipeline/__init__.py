"""`holdfast pipeline`: Spark queries that stay correct when partitions move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_command_group
from holdfast.cli.pipeline import aggregate, aggregate_show, forensics, land, land_compact

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_command_group(commands, "pipeline", "run Spark pipelines that stay correct when partitions move")
    for command in (land, land_compact, aggregate, aggregate_show, forensics):
        command.add_command(family)
