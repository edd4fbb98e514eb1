"""`holdfast groups add-members`: register static members before they join, so that one rebalance adds all of them
(KIP-469)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import CommaList, whole_number
from holdfast.cli.parsing import add_command as add
from holdfast.cli.results import error_json

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.descriptions import Registered

_WAIT_MS: Final = 300_000
"""The client's default, repeated here so that `--help` does not have to load the client."""
_DETAILS: Final = """\
Start the members afterwards. Each one waits in the group as a standby while the others keep working; when the last
one has joined, or the wait has expired, one rebalance admits them all. The group does not have to exist yet.
Requires a Holdfast broker; Apache Kafka does not support registration."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "add-members",
        run,
        "register static members that are about to join, so that they cost one rebalance",
        [
            "holdfast groups add-members --bootstrap-server 127.0.0.1:9092 --group orders "
            "--instance-ids orders-3,orders-4",
            "holdfast groups add-members --bootstrap-server 127.0.0.1:9092 --group orders "
            "--instance-ids orders-5 --wait-ms 600000 --json",
        ],
        _DETAILS,
        needs="READ on the group",
    )
    parser.add_argument("--group", "--group-id", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--instance-ids",
        "--group-instance-ids",
        metavar="ID,…",
        action=CommaList,
        required=True,
        help="instance ids of the members, separated by commas; may be repeated",
    )
    parser.add_argument(
        "--wait-ms",
        metavar="MS",
        type=whole_number(1),
        default=_WAIT_MS,
        help=f"how long to wait for the last member (default: {_WAIT_MS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        results = admin.add_members(options.group, dict.fromkeys(options.instance_ids), options.wait_ms)
    if options.json:
        print_json(
            [{"instance_id": one.instance_id, "outcome": str(one.outcome)} | error_json(one.error) for one in results]
        )
    else:
        print_table(("INSTANCE-ID", "RESULT"), [(one.instance_id, _result(one)) for one in results])
    failed = [one for one in results if one.error is not None]
    if failed:
        print_to_stderr(options.prog, f"{len(failed)} of {len(results)} members were not registered")
    return EXIT_FAILED if failed else EXIT_OK


def _result(one: Registered) -> str:
    if one.error is None:
        return str(one.outcome)
    return f"{one.outcome}: {str(one.error).removeprefix(f'instance {one.instance_id!r}: ')}"
