"""`holdfast groups watch`: a group as it changes. A terminal shows it whole again and again; a pipe gets a line for
each change."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.connection import add_connection_options, open_admin
from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.groups.history import COLUMNS as EVENT_COLUMNS
from holdfast.cli.groups.history import event_json, event_row, who
from holdfast.cli.groups.roles import Role, arrived_count, expected, roles, standby_count, to_come
from holdfast.cli.groups.views import MEMBER_COLUMNS, assignment_text, member_rows
from holdfast.cli.moments import ago, moment
from holdfast.cli.output import is_terminal, print_json_line, shown, table_lines
from holdfast.cli.parsing import add_command as add
from holdfast.cli.parsing import seconds

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands
    from holdfast.client.admin import Admin
    from holdfast.client.descriptions import GroupDescription, MemberDescription, PartitionLag
    from holdfast.client.history import HistoryEvent

_INTERVAL_S: Final = 2.0
_EVENTS_SHOWN: Final = 10
_RECENTLY: Final = timedelta(hours=1)
"""What happened since then is shown from the start."""
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
    waiting: Mapping[str, Role] = field(default_factory=dict)
    """Who has no share by Holdfast's own rules, and who was announced and is no member yet."""

    @classmethod
    def of(cls, group: GroupDescription) -> Snapshot:
        has = roles(group)
        waiting = to_come(group) | {
            _name(one): has[one.member_id] for one in group.members if has.get(one.member_id) in _ROLE_TEXTS
        }
        return cls(group.state, {_name(one): assignment_text(one) for one in group.members}, waiting)


def _name(member: MemberDescription) -> str:
    return member.group_instance_id or member.member_id


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
    yield from _role_changes({} if before is None else before.waiting, after)
    if before is None or (before.state, len(before.members)) != (after.state, len(after.members)):
        count = len(after.members)
        yield Change("state", f"{after.state}, {_members(count)}", {"state": after.state, "member_count": count})


def _role_changes(before: Mapping[str, Role], after: Snapshot) -> Iterator[Change]:
    for name, role in after.waiting.items():
        if before.get(name) is not role:
            yield Change("role", f"{name} {_ROLE_TEXTS[role]}", {"member": name, "role": str(role)})
    for name in [one for one in before if one not in after.waiting]:
        if name in after.members:
            yield Change("role", f"{name} takes part", {"member": name, "role": str(Role.ACTIVE)})
        elif before[name] is not Role.STANDBY:
            yield Change("role", f"{name} is expected no longer", {"member": name, "role": None})


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
    behind = who(event)
    epoch = "" if event.epoch is None else f", epoch {event.epoch}"
    return f"generation {event.generation}{epoch}, {event.kind}{why}{f' ({behind})' if behind else ''}"


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
        f"{shown(group.group_id)}: {group.state}, {_members(len(group.members))}{_waiting(group)}, lag {lag:,}"
        f"   ({now}, every {interval_s:g} s; Ctrl-C ends)"
    ]
    for columns, rows in (
        (MEMBER_COLUMNS, member_rows(group)),
        (EVENT_COLUMNS, [event_row(event) for event in events]),
    ):
        if rows:
            lines += ["", *table_lines(columns, rows)]
    return lines


def _waiting(group: GroupDescription) -> str:
    """Who has no share, where there is anybody."""
    standbys, announced = standby_count(group), len(expected(group))
    of_them = f" ({standbys} standby{'' if standbys == 1 else 's'})" if standbys else ""
    besides = f", {announced} expected ({arrived_count(group)} arrived)" if announced else ""
    return f"{of_them}{besides}"


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
