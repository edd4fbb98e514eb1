"""`holdfast groups watch`: a group as it changes. A terminal shows it whole again and again; a pipe gets a line for
each change."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.groups.history import COLUMNS as EVENT_COLUMNS
from holdfast.cli.groups.history import event_json, event_row
from holdfast.cli.groups.views import MEMBER_COLUMNS, assignment_text, member_rows
from holdfast.cli.moments import ago, moment
from holdfast.cli.output import is_terminal, print_json_line, shown, table_lines
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import seconds

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import GroupDescription, PartitionLag
    from holdfast.client.history import HistoryEvent

_INTERVAL_S: Final = 2.0
_EVENTS_SHOWN: Final = 10
_RECENTLY: Final = timedelta(hours=1)
"""What happened since then is shown from the start."""
_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "watch",
        run,
        "follow a group live, until Ctrl-C",
        [
            "holdfast groups watch --bootstrap-server 127.0.0.1:9092 --group orders",
            "holdfast groups watch --bootstrap-server 127.0.0.1:9092 --group orders --json | jq .change",
        ],
        "At a terminal the group is shown whole; elsewhere each change is a line. A group that is not there yet is\n"
        "waited for.",
    )
    parser.add_argument("--group", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=_INTERVAL_S,
        help=f"how often to look (default: {_INTERVAL_S:g})",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")
    add_connection_options(parser)


def run(options: argparse.Namespace) -> int:
    with open_admin(options) as admin:
        if is_terminal() and not options.json:
            _watch_screen(options, admin)
        else:
            _watch_lines(options, admin)
    return EXIT_OK


# -- a line for each change --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What of a group is worth a line when it changes."""

    state: str
    members: Mapping[str, str]
    """By instance id, or else member id: what each was assigned. A static member that restarts stays the same."""

    @classmethod
    def of(cls, group: GroupDescription) -> Snapshot:
        return cls(
            group.state,
            {one.group_instance_id or one.member_id: assignment_text(one) for one in group.members},
        )


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    sentence: str
    details: Mapping[str, Any]


def changes(before: Snapshot | None, after: Snapshot) -> Iterator[Change]:
    """What is different, members before the state that comes of them. Of a group that is new everything is."""
    known = {} if before is None else before.members
    for name in known.keys() - after.members.keys():
        yield Change("left", f"{name} left", {"member": name})
    for name, assignment in after.members.items():
        if name not in known:
            yield Change("joined", f"{name} joined", {"member": name})
        if known.get(name, "") != assignment:
            has = assignment or "nothing"
            yield Change("assigned", f"{name} has {has}", {"member": name, "assignment": assignment})
    if before is None or (before.state, len(before.members)) != (after.state, len(after.members)):
        count = len(after.members)
        yield Change("state", f"{after.state}, {_members(count)}", {"state": after.state, "member_count": count})


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def _watch_lines(options: argparse.Namespace, admin: Admin) -> None:
    before: Snapshot | None = None
    for group, events in _looks(options, admin):
        for event in events:
            told = {"kind": event.kind, "cause": event.cause, "event": event_json(event)}
            _print(options, event.at_ms, Change("event", _event_text(event), told))
        after = Snapshot.of(group)
        for change in changes(before, after):
            _print(options, int(time.time() * 1000), change)
        before = after


def _print(options: argparse.Namespace, at_ms: int, change: Change) -> None:
    if options.json:
        print_json_line({"at_ms": at_ms, "group_id": options.group, "change": change.kind, **change.details})
    else:
        print(f"{moment(at_ms)}  {shown(options.group)}  {shown(change.sentence)}", flush=True)


def _event_text(event: HistoryEvent) -> str:
    why = f": {event.cause}" if event.cause else ""
    who = f" ({event.member})" if event.member else ""
    return f"generation {event.generation}, {event.kind}{why}{who}"


# -- the whole of it ---------------------------------------------------------------------------------------------------


def _watch_screen(options: argparse.Namespace, admin: Admin) -> None:
    latest = {event.offset: event for event in _recent(options, admin)}
    for group, events in _looks(options, admin):
        latest |= {event.offset: event for event in events}
        latest = dict(sorted(latest.items())[-_EVENTS_SHOWN:])
        lines = screen(group, admin.lag(options.group), latest.values(), options.interval)
        print(_HOME_AND_CLEAR + "\n".join(lines), flush=True)


def screen(
    group: GroupDescription, lags: Iterable[PartitionLag], events: Iterable[HistoryEvent], interval_s: float
) -> list[str]:
    lag = sum(one.lag or 0 for one in lags)
    now = moment(int(time.time() * 1000))
    lines = [
        f"{shown(group.group_id)}: {group.state}, {_members(len(group.members))}, lag {lag:,}"
        f"   ({now}, every {interval_s:g} s; Ctrl-C ends)"
    ]
    if group.members:
        lines += ["", *table_lines(MEMBER_COLUMNS, member_rows(group))]
    rows = [event_row(event) for event in events]
    if rows:
        lines += ["", *table_lines(EVENT_COLUMNS, rows)]
    return lines


# -- looking -----------------------------------------------------------------------------------------------------------


def _looks(options: argparse.Namespace, admin: Admin) -> Iterator[tuple[GroupDescription, list[HistoryEvent]]]:
    """The group every so often, at once when its ledger has news, and that news."""
    following: Iterator[list[HistoryEvent]] | None = None
    events: list[HistoryEvent] = []
    while True:
        if following is None:
            following = _following(options, admin)
        yield admin.describe_group(options.group), events
        if following is None:
            time.sleep(options.interval)
        else:
            events = next(following)


def _recent(options: argparse.Namespace, admin: Admin) -> list[HistoryEvent]:
    from holdfast.client.errors import TopicError

    with contextlib.suppress(TopicError):
        return admin.history([options.group], since_ms=ago(_RECENTLY))
    return []


def _following(options: argparse.Namespace, admin: Admin) -> Iterator[list[HistoryEvent]] | None:
    """None on Apache Kafka, and on a Holdfast that no group has told anything yet."""
    from holdfast.client.errors import TopicError

    with contextlib.suppress(TopicError):
        return admin.follow_history([options.group], wait=options.interval)
    return None
