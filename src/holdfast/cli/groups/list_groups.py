"""`holdfast groups list`: every group with its state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import CommaList
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands

_STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Unknown",
)
"""Holdfast's states, and those of Apache Kafka's newer group protocols."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "list",
        run,
        "list the groups of all brokers",
        [
            "holdfast groups list --bootstrap-server 127.0.0.1:9092",
            "holdfast groups list --bootstrap-server 127.0.0.1:9092 --states Stable,Empty --json",
        ],
    )
    parser.add_argument(
        "--states", metavar="STATE,…", action=CommaList, help="only groups in these states, e.g. Stable,Empty"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    wanted = {state.lower() for state in options.states or ()}
    unknown = wanted - {state.lower() for state in _STATES}
    if unknown:
        strange = next(state for state in options.states if state.lower() in unknown)
        raise UsageError(f"there is no state {strange!r}; there are {', '.join(_STATES)}")
    with open_admin(options) as admin:
        # Also filtered here, because brokers before Kafka 2.6 do not filter.
        groups = [one for one in admin.list_groups() if not wanted or one.state.lower() in wanted]
    if options.json:
        print_json(
            [
                {
                    "group_id": one.group_id,
                    "state": one.state or None,
                    "type": one.group_type or None,
                    "protocol_type": one.protocol_type or None,
                }
                for one in groups
            ]
        )
    else:
        rows = [(one.group_id, one.state, one.group_type, one.protocol_type) for one in groups]
        print_table(("GROUP", "STATE", "TYPE", "PROTOCOL-TYPE"), rows)
    return EXIT_OK
