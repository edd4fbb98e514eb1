"""`holdfast topics list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "list",
        run,
        "list topics",
        ["holdfast topics list --bootstrap-server 127.0.0.1:9092"],
    )
    parser.add_argument("--internal", action="store_true", help="include internal topics")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        topics = [one for one in admin.list_topics() if options.internal or not one.internal]
    if options.json:
        print_json(
            [
                {
                    "topic": one.name,
                    "partitions": one.partitions,
                    "replication_factor": one.replication_factor,
                    "internal": one.internal,
                }
                for one in topics
            ]
        )
    else:
        rows = [(one.name, one.partitions, one.replication_factor) for one in topics]
        print_table(("TOPIC", "PARTITIONS", "REPLICATION-FACTOR"), rows)
    return EXIT_OK
