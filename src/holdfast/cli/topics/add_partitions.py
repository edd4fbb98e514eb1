"""`holdfast topics add-partitions`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection import add_connection_options, open_admin
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import whole_number
from holdfast.cli.results import print_results

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "add-partitions",
        run,
        "give topics more partitions",
        ["holdfast topics add-partitions --bootstrap-server 127.0.0.1:9092 --topic orders --partitions 12"],
        "Records that are there stay where they are; new ones with the same key may go to another partition.",
        needs="ALTER on the topic",
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="its name; may be repeated")
    parser.add_argument(
        "--partitions", metavar="N", type=whole_number(1), required=True, help="how many there shall be in all"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        results = admin.add_partitions(dict.fromkeys(options.topic, options.partitions))
    return print_results(options, "topic", f"has {options.partitions} partitions now", results)
