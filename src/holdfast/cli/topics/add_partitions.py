"""`holdfast topics add-partitions`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection_options import add_connection_options, open_admin
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
        "add partitions to topics",
        ["holdfast topics add-partitions --bootstrap-server 127.0.0.1:9092 --topic orders --partitions 12"],
        "Existing records stay in their partition; new records with the same key may go to another one.",
        needs="ALTER on the topic",
    )
    parser.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="its name; may be repeated")
    parser.add_argument(
        "--partitions", metavar="N", type=whole_number(1), required=True, help="the new total number of partitions"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        results = admin.add_partitions(dict.fromkeys(options.topic, options.partitions))
    return print_results(options, "topic", f"has {options.partitions} partitions now", results)
