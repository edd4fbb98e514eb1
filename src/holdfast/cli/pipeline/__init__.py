"""`holdfast pipeline`: Spark queries that stay right when partitions move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.parsing import add_family
from holdfast.cli.pipeline import enrich, enrich_show, forensics, land, land_compact

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    family = add_family(commands, "pipeline", "run Spark queries that stay right when partitions move")
    for command in (land, land_compact, enrich, enrich_show, forensics):
        command.add_command(family)
