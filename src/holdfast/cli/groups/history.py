"""`holdfast groups history`: events of groups with their causes, from Holdfast's ledger."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.output import Cell, StreamedTable, print_json, print_json_line, print_table
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import whole_number
from holdfast.cli.times import format_time, since_option

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.history import HistoryEvent

COLUMNS: Final = ("TIME", "GROUP", "GENERATION", "EPOCH", "EVENT", "CAUSE", "MEMBER", "UNASSIGNED-MS", "MOVED")
WIDTHS: Final = (20, 16, 10, 10, 22, 28, 24, 14, 5)
_MAX_IDS: Final = 8
"""The maximum number that is printed in a row; `--json` has all of them."""


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "history",
        run,
        "print the events of groups, with causes",
        [
            "holdfast groups history --bootstrap-server 127.0.0.1:9092 --group orders --since 2h",
            "holdfast groups history --bootstrap-server 127.0.0.1:9092 --follow --json",
        ],
        "Reads the ledger that Holdfast keeps; Apache Kafka has no ledger.",
    )
    parser.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="only this group; may be repeated"
    )
    parser.add_argument(
        "--since", metavar="WHEN", type=since_option, help="only events since then: 2h (ago), or 2026-05-31T08:30:00Z"
    )
    parser.add_argument("--last", metavar="N", type=whole_number(), help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="keep printing new events, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print JSON; with --follow a line for each event")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        if options.follow:
            _follow(options, admin)
        events = _past_events(options, admin)
    if options.json:
        print_json([event_json(event) for event in events])
    else:
        print_table(COLUMNS, [event_row(event) for event in events])
    return EXIT_OK


def _past_events(options: argparse.Namespace, admin: Admin) -> list[HistoryEvent]:
    events = admin.history(options.group, since_ms=options.since)
    return events if options.last is None else events[len(events) - min(len(events), options.last) :]


def _follow(options: argparse.Namespace, admin: Admin) -> None:
    """Until Ctrl-C. It starts to follow before it reads the past, so that no event is missed in between."""
    following = admin.follow_history(options.group)
    past = _past_events(options, admin)
    lines = StreamedTable(COLUMNS, WIDTHS)
    if not options.json:
        lines.print_header()
    printed_up_to = _print(options, lines, past, -1)
    for events in following:
        printed_up_to = _print(options, lines, events, printed_up_to)


def _print(
    options: argparse.Namespace, lines: StreamedTable, events: Sequence[HistoryEvent], printed_up_to: int
) -> int:
    for event in events:
        if event.offset > printed_up_to:
            printed_up_to = event.offset
            if options.json:
                print_json_line(event_json(event))
            else:
                lines.print(event_row(event))
    return printed_up_to


def event_row(event: HistoryEvent) -> Sequence[Cell]:
    fields = event.fields
    return (
        format_time(event.at_ms),
        event.group_id,
        event.generation,
        event.epoch,
        event.kind,
        _why(event),
        who(event),
        _number(fields.get("unassigned_ms")),
        _number(fields.get("changed_owner", fields.get("moved_partitions"))),
    )


def who(event: HistoryEvent) -> str | None:
    """The member that the event is about, and the one that it replaced; or the registered members."""
    if event.instance_ids:
        shown, left = event.instance_ids[:_MAX_IDS], len(event.instance_ids) - _MAX_IDS
        return ",".join(shown) + (f" and {left} more" if left > 0 else "")
    if event.member and event.previous_member:
        return f"{event.member} for {event.previous_member}"
    return event.member


def _why(event: HistoryEvent) -> str:
    """The broker's cause, and the reason that the client gave."""
    reason = event.fields.get("reason")
    return f"{event.cause} ({reason})" if reason else event.cause


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def event_json(event: HistoryEvent) -> dict[str, Any]:
    """The fields of the ledger's record, with its wall-clock time."""
    return {**event.fields, "at_ms": event.at_ms, "offset": event.offset}
