"""`holdfast groups history`: what happened to groups, and why, as Holdfast's ledger tells it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.moments import moment, since_option
from holdfast.cli.output import Cell, Lines, print_json, print_json_line, print_table
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import whole_number

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.history import HistoryEvent

COLUMNS: Final = ("TIME", "GROUP", "GENERATION", "EPOCH", "EVENT", "CAUSE", "MEMBER", "STOOD-STILL-MS", "MOVED")
WIDTHS: Final = (20, 16, 10, 10, 22, 28, 24, 14, 5)
_MOST_IDS: Final = 8
"""So many stand in a line; `--json` has all that were told."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "history",
        run,
        "print what happened to groups, with causes",
        [
            "holdfast groups history --bootstrap-server 127.0.0.1:9092 --group orders --since 2h",
            "holdfast groups history --bootstrap-server 127.0.0.1:9092 --follow --json",
        ],
        "Read from the ledger that Holdfast keeps; Apache Kafka has none.",
    )
    parser.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="only this group; may be repeated"
    )
    parser.add_argument(
        "--since", metavar="WHEN", type=since_option, help="only from then on: 2h (ago), or 2026-05-31T08:30:00Z"
    )
    parser.add_argument("--last", metavar="N", type=whole_number(), help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="go on printing what happens, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print JSON; with --follow one line for each event")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        if options.follow:
            _follow(options, admin)
        events = _past(options, admin)
    if options.json:
        print_json([event_json(event) for event in events])
    else:
        print_table(COLUMNS, [event_row(event) for event in events])
    return EXIT_OK


def _past(options: argparse.Namespace, admin: Admin) -> list[HistoryEvent]:
    events = admin.history(options.group, since_ms=options.since)
    return events if options.last is None else events[len(events) - min(len(events), options.last) :]


def _follow(options: argparse.Namespace, admin: Admin) -> None:
    """Until Ctrl-C. The following begins before the past is read, so that nothing is missed in between."""
    following = admin.follow_history(options.group)
    past = _past(options, admin)
    lines = Lines(COLUMNS, WIDTHS)
    if not options.json:
        lines.print_header()
    told = _print(options, lines, past, -1)
    for events in following:
        told = _print(options, lines, events, told)


def _print(options: argparse.Namespace, lines: Lines, events: Sequence[HistoryEvent], told: int) -> int:
    for event in events:
        if event.offset > told:
            told = event.offset
            if options.json:
                print_json_line(event_json(event))
            else:
                lines.print(event_row(event))
    return told


def event_row(event: HistoryEvent) -> Sequence[Cell]:
    told = event.fields
    return (
        moment(event.at_ms),
        event.group_id,
        event.generation,
        event.epoch,
        event.kind,
        _why(event),
        who(event),
        _number(told.get("stood_still_ms")),
        _number(told.get("changed_owner", told.get("moved_partitions"))),
    )


def who(event: HistoryEvent) -> str | None:
    """The member behind it, and whose place it took; or the announced members that it is about."""
    if event.instance_ids:
        shown, left = event.instance_ids[:_MOST_IDS], len(event.instance_ids) - _MOST_IDS
        return ",".join(shown) + (f" and {left} more" if left > 0 else "")
    if event.member and event.previous_member:
        return f"{event.member} for {event.previous_member}"
    return event.member


def _why(event: HistoryEvent) -> str:
    """The broker's cause, and what the client itself said."""
    reason = event.fields.get("reason")
    return f"{event.cause} ({reason})" if reason else event.cause


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def event_json(event: HistoryEvent) -> dict[str, Any]:
    """The ledger's own fields, with the time by the wall clock."""
    return {**event.fields, "at_ms": event.at_ms, "offset": event.offset}
