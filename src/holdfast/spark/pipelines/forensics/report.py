"""What came out, for people and for programs: the figures of the groups that had the most to bear, and the page."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute
from pyarrow import dataset as ds

from holdfast.spark.pipelines.forensics.facts import nameable_ms
from holdfast.spark.pipelines.forensics.out import FORMAT
from holdfast.spark.pipelines.forensics.page import page, section
from holdfast.spark.pipelines.forensics.timeline import Drawing, Interval, Mark, Timeline

MOST_SHOWN: Final = 50
"""Groups whose figures are in the report; the tables have all."""
MOST_DRAWN: Final = 10
_SUMS: Final = (
    "rebalances",
    "stood_still_ms",
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
    """The rows of `summary` for the groups that stood still for longest."""
    unread: Mapping[str, int]
    """Records that this version cannot read, by kind."""
    notes: Sequence[str] = field(default=())
    window: tuple[int | None, int | None] = (None, None)
    """Since and until when it tells."""

    def drawing(self, group_id: str) -> Drawing:
        """Who owned what in this group, for `picture.png`; KeyError if it is none of those shown."""
        row = next((row for row in self.shown if row["group_id"] == group_id), None)
        if row is None:
            raise KeyError(group_id)
        return _drawings(self.path, [row], self.window)[group_id]

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
    """From the table `summary`, of which few rows are kept at a time."""
    totals = dict.fromkeys(_SUMS, 0)
    worst: list[tuple[tuple[int, int, str], dict[str, Any]]] = []
    groups = 0
    for row in _rows(directory / "summary"):
        groups += 1
        for name in _SUMS:
            totals[name] += row[name] or 0
        row["causes"] = dict(row["causes"])
        rank = (row["partition_ms"], row["rebalances"], row["group_id"])
        if len(worst) < max(MOST_SHOWN, len(wanted)):
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
        notes.append(f"there is nothing to tell of: no group is in {' and in '.join(sources)}")
    if groups > len(shown):
        notes.append(f"{groups - len(shown):,} more groups are in the table `summary`")
    later = [row["group_id"] for row in shown if (row["first_generation"] or 0) > 1]
    if later:
        begins = min(row["history_begins_ms"] for row in shown if row["group_id"] in later)
        notes.append(
            f"of {len(later):,} groups the history begins later than they did, at {_time(begins)} or after: older "
            "records were compacted or deleted"
        )
    if any(row["unseen_generations"] for row in shown):
        missing = sum(row["unseen_generations"] for row in shown)
        notes.append(f"{missing:,} generations left no trace: they were compacted, or were over before all had joined")
    if any(row["is_lower_bound"] for row in shown):
        notes.append(
            "where no ledger tells of a group, the time stood still is that from the end of the join phase on: at "
            "least so long"
        )
    if any(row["unread_assignments"] for row in shown):
        notes.append("some groups are not of type consumer, or assign in their own way: who owned what is not known")
    notes += [f"not read: {count:,} × {name}" for name, count in sorted(unread.items())]
    return notes


def html(directory: Path, report: Report) -> str:
    drawn = report.shown[:MOST_DRAWN]
    drawings = _drawings(directory, drawn, report.window)
    sections = (section(drawings[row["group_id"]], figures(row), row["causes"]) for row in drawn)
    introduction = [
        f"{report.groups:,} groups, read from {' and '.join(report.sources)}. Times are UTC, by the broker's clock.",
        "Rows are partitions, colours are members, red lines are rebalances; hold the pointer over them for more.",
        *report.notes,
    ]
    if len(drawn) < report.groups:
        introduction.append(f"Drawn are the {len(drawn)} groups that stood still for longest.")
    return page("What happened to consumer groups", introduction, sections)


def _drawings(
    directory: Path, shown: Sequence[Mapping[str, Any]], window: tuple[int | None, int | None]
) -> dict[str, Drawing]:
    """Each table is read once, a batch at a time."""
    timelines = {row["group_id"]: _timeline(row, window) for row in shown}
    for row in _rows(directory / "ownership", [*timelines]):
        timelines[row["group_id"]].add(
            Interval(row["topic"], row["partition"], row["member"], row["from_ms"], row["to_ms"])
        )
    for row in _rows(directory / "rebalances", [*timelines]):
        timelines[row["group_id"]].add_mark(Mark(row["started_ms"], _why(row), row["stood_still_ms"] or 0))
    return {group_id: timeline.drawing() for group_id, timeline in timelines.items()}


def _timeline(row: Mapping[str, Any], window: tuple[int | None, int | None]) -> Timeline:
    begin = row["history_begins_ms"] if window[0] is None else max(window[0], row["history_begins_ms"])
    end = row["history_ends_ms"] if window[1] is None else window[1]
    # A group is at work until the report, though nothing may have happened since; a little of that is shown.
    return Timeline(row["group_id"], begin, end + max(1, (end - begin) // 50))


def _why(row: Mapping[str, Any]) -> str:
    who = f": {row['member']}" if row["member"] else ""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"{row['cause']}{who}{reason}; {row['outcome']}"


def figures(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    least = "at least " if row["is_lower_bound"] else ""
    return [
        ("rebalances", f"{row['rebalances']:,}"),
        ("stood still", f"{least}{row['stood_still_ms']:,} ms, {row['partition_ms']:,} partition·ms"),
        ("partitions moved", f"{row['moved']:,}"),
        ("restarts that nobody noticed", f"{row['static_rejoins']:,}"),
        ("members that flap", f"{row['flapping']:,}"),
        ("offsets that went back", f"{row['went_back']:,}"),
        ("two owners at once", f"{row['two_owners']:,}"),
        ("static membership would have saved", _saved(row, "static")),
        ("a registration would have saved", _saved(row, "registration")),
        ("a standby would have saved", _saved(row, "standby")),
    ]


def _saved(row: Mapping[str, Any], measure: str) -> str:
    rebalances = row[f"{measure}_rebalances"]
    plural = "" if rebalances == 1 else "s"
    return f"{rebalances:,} rebalance{plural}, {row[f'{measure}_partition_ms']:,} partition·ms"


def _rows(table: Path, groups: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    wanted = None if groups is None else compute.field("group_id").isin(pa.array(groups, pa.string()))
    for batch in ds.dataset(table, format="parquet").to_batches(filter=wanted):
        yield from batch.to_pylist()


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(nameable_ms(at_ms) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
