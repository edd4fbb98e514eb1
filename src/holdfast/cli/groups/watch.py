"""`holdfast groups watch`: follow a group. On a terminal the whole group is redrawn; to a pipe, one line is printed for
each change."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection_options import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.groups.history import COLUMNS as EVENT_COLUMNS
from holdfast.cli.groups.history import event_json, event_row, who
from holdfast.cli.groups.roles import Role, arrived_count, expected, not_yet_members, roles, standby_count
from holdfast.cli.groups.views import MEMBER_COLUMNS, assignment_text, member_rows
from holdfast.cli.output import is_terminal, print_json_line, printable, table_lines
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import seconds
from holdfast.cli.times import ago, format_time

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import GroupDescription, MemberDescription, PartitionLag
    from holdfast.client.history import HistoryEvent

_INTERVAL_S: Final = 2.0
_EVENTS_SHOWN: Final = 10
_RECENTLY: Final = timedelta(hours=1)
"""The maximum age of the events that are shown at the start."""
_ROLE_TEXTS: Final = {
    Role.STANDBY: "is a standby",
    Role.ARRIVED: "has arrived and waits for the others",
    Role.EXPECTED: "is expected",
}
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
        "On a terminal the whole group is shown; otherwise each change is a line. If the group does not exist yet,\n"
        "the command waits for it.",
    )
    parser.add_argument("--group", metavar="GROUP", required=True, help="the group")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=_INTERVAL_S,
        help=f"how often to refresh (default: {_INTERVAL_S:g})",
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
    """The properties of a group whose changes are printed."""

    state: str
    members: Mapping[str, str]
    """Assignments, by instance id or else member id. A static member that restarts keeps its entry."""
    not_active: Mapping[str, Role] = field(default_factory=dict)
    """Standbys, and registered members that have not joined yet."""

    @classmethod
    def of(cls, group: GroupDescription) -> Snapshot:
        has = roles(group)
        not_active = not_yet_members(group) | {
            _name(one): has[one.member_id] for one in group.members if has.get(one.member_id) in _ROLE_TEXTS
        }
        return cls(group.state, {_name(one): assignment_text(one) for one in group.members}, not_active)


def _name(member: MemberDescription) -> str:
    return member.group_instance_id or member.member_id


@dataclass(frozen=True, slots=True)
class ObservedChange:
    kind: str
    sentence: str
    details: Mapping[str, Any]


def changes(before: Snapshot | None, after: Snapshot) -> Iterator[ObservedChange]:
    """The differences, members before the state. Of a new group everything is different."""
    known = {} if before is None else before.members
    for name in known.keys() - after.members.keys():
        yield ObservedChange("left", f"{name} left", {"member": name})
    for name, assignment in after.members.items():
        if name not in known:
            yield ObservedChange("joined", f"{name} joined", {"member": name})
        if known.get(name, "") != assignment:
            has = assignment or "nothing"
            yield ObservedChange("assigned", f"{name} has {has}", {"member": name, "assignment": assignment})
    yield from _role_changes({} if before is None else before.not_active, after)
    if before is None or (before.state, len(before.members)) != (after.state, len(after.members)):
        count = len(after.members)
        yield ObservedChange(
            "state", f"{after.state}, {_members(count)}", {"state": after.state, "member_count": count}
        )


def _role_changes(before: Mapping[str, Role], after: Snapshot) -> Iterator[ObservedChange]:
    for name, role in after.not_active.items():
        if before.get(name) is not role:
            yield ObservedChange("role", f"{name} {_ROLE_TEXTS[role]}", {"member": name, "role": str(role)})
    for name in [one for one in before if one not in after.not_active]:
        if name in after.members:
            yield ObservedChange("role", f"{name} is active", {"member": name, "role": str(Role.ACTIVE)})
        elif before[name] is not Role.STANDBY:
            yield ObservedChange("role", f"{name} is expected no longer", {"member": name, "role": None})


def _members(count: int) -> str:
    return f"{count} member{'' if count == 1 else 's'}"


def _watch_lines(options: argparse.Namespace, admin: Admin) -> None:
    before: Snapshot | None = None
    for group, events in _poll_group(options, admin):
        for event in events:
            details = {"kind": event.kind, "cause": event.cause, "event": event_json(event)}
            _print(options, event.at_ms, ObservedChange("event", _event_text(event), details))
        after = Snapshot.of(group)
        for change in changes(before, after):
            _print(options, int(time.time() * 1000), change)
        before = after


def _print(options: argparse.Namespace, at_ms: int, change: ObservedChange) -> None:
    if options.json:
        print_json_line({"at_ms": at_ms, "group_id": options.group, "change": change.kind, **change.details})
    else:
        print(f"{format_time(at_ms)}  {printable(options.group)}  {printable(change.sentence)}", flush=True)


def _event_text(event: HistoryEvent) -> str:
    why = f": {event.cause}" if event.cause else ""
    behind = who(event)
    epoch = "" if event.epoch is None else f", epoch {event.epoch}"
    return f"generation {event.generation}{epoch}, {event.kind}{why}{f' ({behind})' if behind else ''}"


# -- the whole group ---------------------------------------------------------------------------------------------------


def _watch_screen(options: argparse.Namespace, admin: Admin) -> None:
    latest = {event.offset: event for event in _recent(options, admin)}
    for group, events in _poll_group(options, admin):
        latest |= {event.offset: event for event in events}
        latest = dict(sorted(latest.items())[-_EVENTS_SHOWN:])
        lines = screen(group, admin.lag(options.group), latest.values(), options.interval)
        print(_HOME_AND_CLEAR + "\n".join(lines), flush=True)


def screen(
    group: GroupDescription, lags: Iterable[PartitionLag], events: Iterable[HistoryEvent], interval_s: float
) -> list[str]:
    lag = sum(one.lag or 0 for one in lags)
    now = format_time(int(time.time() * 1000))
    lines = [
        f"{printable(group.group_id)}: {group.state}, {_members(len(group.members))}{_standby_text(group)}, lag {lag:,}"
        f"   ({now}, every {interval_s:g} s; Ctrl-C ends)"
    ]
    for columns, rows in (
        (MEMBER_COLUMNS, member_rows(group)),
        (EVENT_COLUMNS, [event_row(event) for event in events]),
    ):
        if rows:
            lines += ["", *table_lines(columns, rows)]
    return lines


def _standby_text(group: GroupDescription) -> str:
    """How many standbys and expected members there are, if any."""
    standbys, registered = standby_count(group), len(expected(group))
    of_them = f" ({standbys} standby{'' if standbys == 1 else 's'})" if standbys else ""
    besides = f", {registered} expected ({arrived_count(group)} arrived)" if registered else ""
    return f"{of_them}{besides}"


# -- polling -----------------------------------------------------------------------------------------------------------


def _poll_group(options: argparse.Namespace, admin: Admin) -> Iterator[tuple[GroupDescription, list[HistoryEvent]]]:
    """The group and its new events: once per interval, and at once when the ledger has an event."""
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
    """None on Apache Kafka, and on a Holdfast whose ledger does not exist yet."""
    from holdfast.client.errors import TopicError

    with contextlib.suppress(TopicError):
        return admin.follow_history([options.group], wait=options.interval)
    return None
