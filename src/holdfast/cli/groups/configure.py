"""`holdfast groups configure`: set the target group size, the delay of a takeover, and other configs of a group."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import UsageError
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import name_and_value, whole_number

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin

_TARGET_SIZE: Final = "target.group.size"
_STANDBY_TAKEOVER: Final = "standby.takeover.ms"

Changes = dict[str, str | None]


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "configure",
        run,
        "show or change the configs of a group: target size, standby takeover",
        [
            "holdfast groups configure --bootstrap-server 127.0.0.1:9092 --group orders",
            "holdfast groups configure --bootstrap-server 127.0.0.1:9092 --group orders --target-size 4 "
            "--standby-takeover-ms 5000",
            "holdfast groups configure --bootstrap-server 127.0.0.1:9092 --group orders --unset standby.takeover.ms",
        ],
        "Without a change, the command shows the current configs. The group does not have to exist yet. Standbys\n"
        "require a Holdfast broker; on Apache Kafka, --set and --unset take Kafka's group configs.",
        needs="DESCRIBE and DESCRIBE_CONFIGS on the group, and ALTER_CONFIGS to change them",
    )
    parser.add_argument("--group", "--group-id", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--target-size",
        metavar="N",
        type=whole_number(0),
        help=f"number of active members; further members are standbys; 0: no limit ({_TARGET_SIZE})",
    )
    parser.add_argument(
        "--standby-takeover-ms",
        metavar="MS",
        type=whole_number(1),
        help="a standby takes over this many milliseconds after a member's connection closes, without waiting for the "
        f"session to expire ({_STANDBY_TAKEOVER})",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        type=name_and_value,
        default=[],
        help="one config; may be repeated",
    )
    parser.add_argument(
        "--unset", metavar="NAME", action="append", default=[], help="back to the default; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    changes = _changes(options)
    with open_admin(options) as admin:
        if not changes:
            _show(options, admin)
            return EXIT_OK
        admin.configure_group(options.group, changes)
    if options.json:
        print_json({"group_id": options.group, "changed": changes})
    else:
        rows = [(name, "back to the default" if value is None else value) for name, value in changes.items()]
        print_table(("CONFIG", "NOW"), rows)
    return EXIT_OK


def _changes(options: argparse.Namespace) -> Changes:
    given: list[tuple[str, str | None]] = [*options.set, *((name, None) for name in options.unset)]
    if options.target_size is not None:
        given.append((_TARGET_SIZE, str(options.target_size)))
    if options.standby_takeover_ms is not None:
        given.append((_STANDBY_TAKEOVER, str(options.standby_takeover_ms)))
    changes: Changes = {}
    for name, value in given:
        if name in changes:
            raise UsageError(f"{name} is given twice")
        changes[name] = value
    return changes


def _show(options: argparse.Namespace, admin: Admin) -> None:
    configs = admin.group_config(options.group)
    if options.json:
        found = [{"name": name, "value": one.value, "default": one.is_default} for name, one in configs.items()]
        print_json({"group_id": options.group, "configs": found})
    else:
        rows = [(name, one.value, "default" if one.is_default else "set") for name, one in configs.items()]
        print_table(("CONFIG", "VALUE", "SOURCE"), rows)
