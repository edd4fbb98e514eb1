"""`holdfast gateway release`: give a group back to Kafka's own coordinator."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, client_settings
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, printable
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands

_DETAILS: Final = """\
Stop the members of the group first. The gateway writes the committed offsets of the group to Kafka, reads them back,
and stops coordinating the group. Then start the members again with the addresses of the Kafka brokers. If the command
fails, the group stays on the gateway."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "release",
        run,
        "give a group back to Kafka, with its committed offsets",
        ["holdfast gateway release orders --bootstrap-server 127.0.0.1:9092"],
        _DETAILS,
        needs="DELETE on the group",
    )
    parser.add_argument("group", metavar="GROUP", help="the group")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    from holdfast.client.gateway_admin import GatewayAdmin

    with GatewayAdmin(client_settings(options)) as admin:
        count = admin.release_group(options.group, options.timeout)
    if options.json:
        print_json({"group_id": options.group, "partitions": count})
    else:
        offsets = "1 partition" if count == 1 else f"{count} partitions"
        print(f"{printable(options.group)}: released, with the offsets of {offsets}")
    return EXIT_OK
