"""`holdfast groups delete`: groups without members, with their offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.groups.selection import add_group_options
from holdfast.cli.parsing import add_command as add
from holdfast.cli.results import print_results

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "delete",
        run,
        "delete groups that have no members, with their offsets",
        ["holdfast groups delete --bootstrap-server 127.0.0.1:9092 --group orders --group invoices"],
        needs="DELETE on the group",
    )
    add_group_options(parser, every=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        results = admin.delete_groups(list(dict.fromkeys(options.group)))
    return print_results(options, "group_id", "deleted", results)
