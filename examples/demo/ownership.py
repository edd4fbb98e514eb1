"""The owners of partitions over time, from `holdfast pipeline forensics`, and their picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow import compute

from examples.demo.figures import Owned
from examples.demo.processes import FAST_START_OPTIONS, run_to_end
from examples.demo.scenario import Outcome
from holdfast.spark.pipelines.forensics.png_report import png
from holdfast.spark.pipelines.forensics.timeline import Interval, Mark, Timeline


def investigate(bootstrap: str, groups: Sequence[str], out: Path, log: Path) -> None:
    """Runs `holdfast pipeline forensics`."""
    command = [sys.executable, "-m", "holdfast", "pipeline", "forensics", "--bootstrap-server", bootstrap]
    command += ["--conf", f"spark.driver.extraJavaOptions={FAST_START_OPTIONS}"]
    command += ["--out", str(out), *(word for group in groups for word in ("--group", group))]
    run_to_end(command, "the forensics to end", log)


def owned(report: Path, played: Outcome) -> list[Owned]:
    """By client id, which static and dynamic members keep across restarts."""
    return [
        Owned(row["client_id"], row["partition"], row["from_ms"], row["to_ms"] or played.ended_ms)
        for row in _rows(report / "ownership", played.group)
    ]


def picture(report: Path, played: Outcome) -> bytes:
    """The timeline as a PNG."""
    intervals = [
        Interval(played.topic, one.partition, one.who, one.from_ms, min(one.to_ms, played.ended_ms))
        for one in owned(report, played)
        if one.from_ms < played.ended_ms
    ]
    marks = [
        Mark(row["started_ms"], row["cause"] or "", row["unassigned_ms"] or 0)
        for row in _rows(report / "rebalances", played.group)
        if row["started_ms"] < played.ended_ms
    ]
    return png(Timeline.of(f"{played.group}: owners of the partitions", intervals, marks).drawing())


def _rows(table: Path, group: str) -> Iterator[dict[str, Any]]:
    rows = DeltaTable(table).to_pyarrow_dataset().to_table(filter=compute.field("group_id") == group)
    yield from rows.to_pylist()
