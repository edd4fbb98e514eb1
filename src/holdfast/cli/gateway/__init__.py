"""`holdfast gateway`: Holdfast's groups in front of an Apache Kafka cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.gateway import doctor, release, serve

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    """The command itself runs a gateway, and it has subcommands."""
    parser = serve.add_command(commands)
    # Named here: argparse would repeat the options of the gateway before the name of the subcommand.
    family = parser.add_subparsers(title="commands", metavar="COMMAND", prog=parser.prog)
    doctor.add_command(family)
    release.add_command(family)
