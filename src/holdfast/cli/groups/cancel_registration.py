"""`holdfast groups cancel-registration`: stop waiting for registered members (KIP-469)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import CommaList
from holdfast.cli.parsing import add_command as add
from holdfast.cli.results import error_json

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.errors import HoldfastError


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "cancel-registration",
        run,
        "stop waiting for registered members",
        [
            "holdfast groups cancel-registration --bootstrap-server 127.0.0.1:9092 --group orders "
            "--instance-ids orders-4",
            "holdfast groups cancel-registration --bootstrap-server 127.0.0.1:9092 --group orders",
        ],
        "Requires a Holdfast broker; Apache Kafka does not support registration.",
        needs="READ on the group",
    )
    parser.add_argument("--group", "--group-id", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--instance-ids",
        "--group-instance-ids",
        metavar="ID,…",
        action=CommaList,
        help="their instance ids, separated by commas; may be repeated (default: all expected members)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    wanted = None if options.instance_ids is None else list(dict.fromkeys(options.instance_ids))
    with open_admin(options) as admin:
        results = admin.cancel_registration(options.group, wanted)
    if options.json:
        print_json([{"instance_id": one.instance_id} | error_json(one.error) for one in results])
    elif results:
        print_table(("INSTANCE-ID", "RESULT"), [(one.instance_id, _outcome(one.error)) for one in results])
    else:
        print_to_stderr(options.prog, f"group {options.group!r} expects no registered members: nothing to cancel")
    failed = [one for one in results if one.error is not None]
    if failed:
        print_to_stderr(options.prog, f"{len(failed)} of {len(results)} registrations were not cancelled")
    return EXIT_FAILED if failed else EXIT_OK


def _outcome(error: HoldfastError | None) -> str:
    from holdfast.wire.error_codes import ErrorCode

    if error is None:
        return "cancelled"
    if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
        return "not registered (UNKNOWN_MEMBER_ID)"
    return str(error)
