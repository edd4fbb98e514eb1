"""`holdfast groups reset-offsets`: change a group's committed offsets. A dry run unless --execute is given."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.errors import CommandFailed, print_to_stderr
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import print_json, print_table
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import whole_number
from holdfast.cli.times import ago, datetime_option, duration_option

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.descriptions import OffsetReset
    from holdfast.types import TopicPartition

_WITHOUT_MEMBERS: Final = ("Empty", "Dead")

TopicChoice = list["str | TopicPartition"]


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "reset-offsets",
        run,
        "change the committed offsets of a group; a dry run unless --execute is given",
        [
            "holdfast groups reset-offsets --bootstrap-server 127.0.0.1:9092 --group orders --all-topics --to-earliest",
            "holdfast groups reset-offsets --bootstrap-server 127.0.0.1:9092 --group orders --topic orders:0,1 "
            "--by-duration 2h --execute",
        ],
        "The group must have no members. New offsets are limited to the range that the partitions have.",
        needs="READ on the group and the topics",
    )
    parser.add_argument("--group", metavar="GROUP", required=True, help="the group")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        metavar="TOPIC[:PARTITION,…]",
        action="append",
        type=_topic_option,
        help="a topic, or some partitions of it; may be repeated",
    )
    which.add_argument("--all-topics", action="store_true", help="every topic with committed offsets")
    _add_targets(parser.add_mutually_exclusive_group(required=True))
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--execute", action="store_true", help="commit the new offsets")
    doing.add_argument("--dry-run", action="store_true", help="only show the new offsets (this is the default)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(parser)


def _add_targets(where: argparse._MutuallyExclusiveGroup) -> None:
    where.add_argument("--to-earliest", action="store_true", help="the first available record")
    where.add_argument("--to-latest", action="store_true", help="after the last record")
    where.add_argument("--to-offset", metavar="N", type=whole_number(), help="this offset")
    where.add_argument("--shift-by", metavar="N", type=int, help="N records later; earlier if negative")
    where.add_argument(
        "--to-datetime", metavar="TIME", type=datetime_option, help="the first record since, e.g. 2026-05-31T08:30:00Z"
    )
    where.add_argument(
        "--by-duration",
        metavar="SPAN",
        type=duration_option,
        help="the first record since this long ago, e.g. 2h or P1DT12H",
    )


def run(options: argparse.Namespace) -> int:
    topics: TopicChoice | None = None if options.all_topics else [one for given in options.topic for one in given]
    with open_admin(options) as admin:
        state = admin.describe_group(options.group).state
        if state not in _WITHOUT_MEMBERS:
            busy = f"group {options.group!r} has members (its state is {state}): stop them before its offsets change"
            if options.execute:
                raise CommandFailed(busy)
            print_to_stderr(options.prog, busy)
        resets = admin.reset_offsets(options.group, topics, dry_run=not options.execute, **_target(options))
    _print(options, resets)
    if not options.execute:
        print_to_stderr(options.prog, "nothing was changed: this was a dry run; add --execute to do it")
    return EXIT_OK


def _target(options: argparse.Namespace) -> dict[str, Any]:
    if options.to_earliest:
        return {"to": "earliest"}
    if options.to_latest:
        return {"to": "latest"}
    if options.to_offset is not None:
        return {"to": options.to_offset}
    if options.shift_by is not None:
        return {"shift_by": options.shift_by}
    if options.to_datetime is not None:
        return {"to_time_ms": options.to_datetime}
    return {"to_time_ms": ago(options.by_duration)}


def _print(options: argparse.Namespace, resets: Mapping[TopicPartition, OffsetReset]) -> None:
    if options.json:
        print_json(
            {
                "group_id": options.group,
                "executed": options.execute,
                "partitions": [
                    {"topic": topic, "partition": number, "current_offset": one.before, "new_offset": one.after}
                    for (topic, number), one in sorted(resets.items())
                ],
            }
        )
        return
    rows = [(options.group, topic, number, one.before, one.after) for (topic, number), one in sorted(resets.items())]
    print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)


def _topic_option(text: str) -> TopicChoice:
    """`orders` means all partitions, `orders:0,1` two of them. A topic's name has no colon."""
    name, colon, listed = text.partition(":")
    numbers = listed.split(",") if colon else []
    if not name or not all(number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC or TOPIC:PARTITION,…")
    return [(name, int(number)) for number in numbers] if colon else [name]
