"""The report for people and for programs: the figures of the groups with the highest cost, and the page."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from holdfast.spark.pipelines.forensics.delta_tables import read_batches
from holdfast.spark.pipelines.forensics.html_report import page, section
from holdfast.spark.pipelines.forensics.png_report import png
from holdfast.spark.pipelines.forensics.records import clamp_to_dates
from holdfast.spark.pipelines.forensics.report_dir import FORMAT
from holdfast.spark.pipelines.forensics.timeline import MAX_PICTURE_ROWS, MAX_ROWS, Drawing, Interval, Mark, Timeline

MAX_SHOWN: Final = 50
"""Groups in the report; the tables have all."""
MAX_DRAWN: Final = 10
_SUMS: Final = (
    "rebalances",
    "unassigned_ms",
    "partition_ms",
    "moved",
    "flapping",
    "went_back",
    "two_owners",
    "static_rebalances",
    "registration_rebalances",
    "standby_rebalances",
    "standby_partition_ms",
)


@dataclass(frozen=True, slots=True)
class Report:
    path: Path
    sources: tuple[str, ...]
    """The topics that were read."""
    groups: int
    totals: Mapping[str, int]
    """Over all groups."""
    shown: Sequence[Mapping[str, Any]]
    """The rows of `summary` for the groups with the highest cost."""
    unread: Mapping[str, int]
    """Records that this version cannot read, by kind."""
    notes: Sequence[str] = field(default=())
    window: tuple[int | None, int | None] = (None, None)
    """The time window: since, until."""

    def drawing(self, group_id: str) -> Drawing:
        """The owners over time in this group, for a picture; KeyError if it is not one of those shown."""
        row = next((row for row in self.shown if row["group_id"] == group_id), None)
        if row is None:
            raise KeyError(group_id)
        return _drawings(self.path, [row], self.window, MAX_PICTURE_ROWS)[group_id]

    def png(self, group_id: str) -> bytes:
        """The timeline of this group as a PNG. It needs the extra `plot`."""
        return png(self.drawing(group_id))

    def to_json(self) -> dict[str, Any]:
        return {
            "forensics": FORMAT,
            "path": str(self.path),
            "sources": list(self.sources),
            "groups": self.groups,
            "totals": dict(self.totals),
            "shown": [dict(row) for row in self.shown],
            "unread": dict(self.unread),
            "notes": list(self.notes),
        }


def summarise(
    directory: Path,
    out: Path,
    sources: Sequence[str],
    unread: Mapping[str, int],
    wanted: Collection[str] = (),
    window: tuple[int | None, int | None] = (None, None),
) -> Report:
    """From the table `summary`, without keeping all of its rows in memory."""
    totals = dict.fromkeys(_SUMS, 0)
    worst: list[tuple[tuple[int, int, str], dict[str, Any]]] = []
    groups = 0
    for row in _rows(directory / "summary"):
        groups += 1
        for name in _SUMS:
            totals[name] += row[name] or 0
        row["causes"] = dict(row["causes"])
        rank = (row["partition_ms"], row["rebalances"], row["group_id"])
        if len(worst) < max(MAX_SHOWN, len(wanted)):
            heapq.heappush(worst, (rank, row))
        elif rank > worst[0][0]:
            heapq.heapreplace(worst, (rank, row))
    shown = [row for _, row in sorted(worst, key=lambda one: one[0], reverse=True)]
    return Report(
        out, tuple(sources), groups, totals, shown, dict(unread), _notes(sources, groups, shown, unread), window
    )


def _notes(
    sources: Sequence[str], groups: int, shown: Sequence[Mapping[str, Any]], unread: Mapping[str, int]
) -> list[str]:
    notes = []
    if not groups:
        notes.append(f"nothing to report: there is no group in {' and in '.join(sources)}")
    if groups > len(shown):
        notes.append(f"{groups - len(shown):,} more groups are in the table `summary`")
    later = [row["group_id"] for row in shown if (row["first_generation"] or 0) > 1]
    if later:
        begins = min(row["history_begins_ms"] for row in shown if row["group_id"] in later)
        notes.append(
            f"the history of {len(later):,} groups is incomplete and starts at {_time(begins)} or later: older records "
            "were compacted or deleted"
        )
    if any(row["unseen_generations"] for row in shown):
        missing = sum(row["unseen_generations"] for row in shown)
        notes.append(
            f"{missing:,} generations have no records: they were compacted, or ended before all members joined"
        )
    if any(row["is_lower_bound"] for row in shown):
        notes.append(
            "for groups without a ledger, the time without assignments is counted from the end of the join phase on, "
            "and is a lower bound"
        )
    if any(row["unread_assignments"] for row in shown):
        notes.append(
            "some groups are not consumer groups, or use their own assignment format: their owners are unknown"
        )
    notes += [f"unreadable: {count:,} × {name}" for name, count in sorted(unread.items())]
    return notes


def html(directory: Path, report: Report) -> str:
    drawn = report.shown[:MAX_DRAWN]
    drawings = _drawings(directory, drawn, report.window)
    sections = (section(drawings[row["group_id"]], figures(row), row["causes"]) for row in drawn)
    introduction = [
        f"{report.groups:,} groups, read from {' and '.join(report.sources)}. Times are UTC, by the broker's clock.",
        "Rows are partitions, colours are members, red lines are rebalances; point at them for details.",
        *report.notes,
    ]
    if len(drawn) < report.groups:
        introduction.append(f"The timelines show the {len(drawn)} groups with the highest cost.")
    return page("Consumer group forensics", introduction, sections)


def _drawings(
    directory: Path,
    shown: Sequence[Mapping[str, Any]],
    window: tuple[int | None, int | None],
    max_rows: int = MAX_ROWS,
) -> dict[str, Drawing]:
    """Each table is read once, a batch at a time."""
    timelines = {row["group_id"]: _timeline(row, window, max_rows) for row in shown}
    for row in _rows(directory / "ownership", [*timelines]):
        timelines[row["group_id"]].add(
            Interval(row["topic"], row["partition"], row["member"], row["from_ms"], row["to_ms"])
        )
    for row in _rows(directory / "rebalances", [*timelines]):
        timelines[row["group_id"]].add_mark(Mark(row["started_ms"], _mark_label(row), row["unassigned_ms"] or 0))
    return {group_id: timeline.drawing() for group_id, timeline in timelines.items()}


def _timeline(row: Mapping[str, Any], window: tuple[int | None, int | None], max_rows: int) -> Timeline:
    begin = row["history_begins_ms"] if window[0] is None else max(window[0], row["history_begins_ms"])
    end = row["history_ends_ms"] if window[1] is None else window[1]
    # A group is active until the report, though there may be no records since; a little of that time is shown.
    return Timeline(row["group_id"], begin, end + max(1, (end - begin) // 50), max_rows)


def _mark_label(row: Mapping[str, Any]) -> str:
    who = f": {row['member']}" if row["member"] else ""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"{row['cause']}{who}{reason}; {row['outcome']}"


def figures(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    least = "at least " if row["is_lower_bound"] else ""
    return [
        ("rebalances", f"{row['rebalances']:,}"),
        ("time without assignments", f"{least}{row['unassigned_ms']:,} ms, {row['partition_ms']:,} partition·ms"),
        ("partitions moved", f"{row['moved']:,}"),
        ("restarts without a rebalance", f"{row['static_rejoins']:,}"),
        ("flapping members", f"{row['flapping']:,}"),
        ("offsets committed backwards", f"{row['went_back']:,}"),
        ("double ownership", f"{row['two_owners']:,}"),
        ("static membership would have avoided", _saved(row, "static")),
        ("registration would have avoided", _saved(row, "registration")),
        ("a standby would have avoided", _saved(row, "standby")),
    ]


def _saved(row: Mapping[str, Any], measure: str) -> str:
    rebalances = row[f"{measure}_rebalances"]
    plural = "" if rebalances == 1 else "s"
    return f"{rebalances:,} rebalance{plural}, {row[f'{measure}_partition_ms']:,} partition·ms"


def _rows(table: Path, groups: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    wanted = None if groups is None else compute.field("group_id").isin(pa.array(groups, pa.string()))
    for batch in read_batches(table, wanted):
        yield from batch.to_pylist()


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(clamp_to_dates(at_ms) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
