"""`holdfast groups describe`: offsets, members or state, with the columns of kafka-consumer-groups."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import CommandFailed, describe_error, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.groups.selection import add_group_options, chosen_groups, describe_existing
from holdfast.cli.groups.views import (
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    STATE_COLUMNS,
    expected_json,
    group_json,
    member_rows,
    members_json,
    offset_rows,
    offsets_json,
    state_json,
    state_row,
)
from holdfast.cli.output import Cell, print_json, print_table
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import GroupDescription
    from holdfast.client.history import LastRebalance


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "describe",
        run,
        "show offsets and lag, members, or the state of groups",
        [
            "holdfast groups describe --bootstrap-server 127.0.0.1:9092 --group orders",
            "holdfast groups describe --bootstrap-server 127.0.0.1:9092 --group orders --members --verbose",
            "holdfast groups describe --bootstrap-server 127.0.0.1:9092 --all-groups --state --json",
        ],
        "Offsets are shown unless --members or --state is given.",
        needs="DESCRIBE on the group and its topics",
    )
    add_group_options(parser, every=True)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag by partition (this is the default)")
    what.add_argument("--members", action="store_true", help="members with instance ids and roles")
    what.add_argument(
        "--state", action="store_true", help="coordinator, strategy, state, standbys, the latest rebalance"
    )
    parser.add_argument("--verbose", action="store_true", help="with --members: the assignment of each member")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        wanted = chosen_groups(options, admin)
        found, failed = _described(options, admin, wanted)
        last = admin.last_rebalances(wanted) if options.state and found else {}
        if options.json:
            print_json([group_json(one) | _section(options, admin, one, last) for one in found])
        elif found:
            _print(options, admin, found, last)
    return EXIT_FAILED if failed else EXIT_OK


def _described(
    options: argparse.Namespace, admin: Admin, group_ids: Sequence[str]
) -> tuple[list[GroupDescription], bool]:
    """The groups that exist; prints an error for each of the others."""
    from holdfast.client.errors import GroupError

    found: list[GroupDescription] = []
    failed = False
    for group_id in group_ids:
        try:
            found.append(describe_existing(admin, group_id))
        except (CommandFailed, GroupError) as error:
            print_to_stderr(options.prog, describe_error(options, error))
            failed = True
    return found, failed


def _section(
    options: argparse.Namespace, admin: Admin, group: GroupDescription, last: Mapping[str, LastRebalance]
) -> dict[str, Any]:
    if options.members:
        return {"members": members_json(group), "expected": expected_json(group)}
    if options.state:
        return state_json(group, last.get(group.group_id))
    return {"offsets": offsets_json(admin.lag(group.group_id))}


def _print(
    options: argparse.Namespace,
    admin: Admin,
    groups: Sequence[GroupDescription],
    last: Mapping[str, LastRebalance],
) -> None:
    if options.state:
        print_table(STATE_COLUMNS, [state_row(one, last.get(one.group_id)) for one in groups])
        return
    for number, group in enumerate(groups):
        if not group.members:
            print_to_stderr(options.prog, f"group {group.group_id!r} has no members; its state is {group.state}")
        header, rows = _table(options, admin, group)
        if rows:
            if number:
                print()
            print_table(header, rows)


def _table(
    options: argparse.Namespace, admin: Admin, group: GroupDescription
) -> tuple[Sequence[str], Sequence[Sequence[Cell]]]:
    if options.members:
        rows = member_rows(group)
        return (MEMBER_COLUMNS, rows) if options.verbose else (MEMBER_COLUMNS[:-1], [row[:-1] for row in rows])
    return OFFSET_COLUMNS, offset_rows(group, admin.lag(group.group_id))
