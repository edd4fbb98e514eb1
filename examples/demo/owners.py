"""Who owned which partition when, as the forensics of the product find it, and what that looks like."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet

from examples.demo.acts import Played
from examples.demo.figures import Owned
from examples.demo.processes import SOON_READY, run_to_end
from holdfast.spark.pipelines.forensics.picture import png
from holdfast.spark.pipelines.forensics.timeline import Interval, Mark, Timeline


def investigate(bootstrap: str, groups: Sequence[str], out: Path, log: Path) -> None:
    """What anybody can run at home: `holdfast pipeline forensics`."""
    command = [sys.executable, "-m", "holdfast", "pipeline", "forensics", "--bootstrap-server", bootstrap]
    command += ["--conf", f"spark.driver.extraJavaOptions={SOON_READY}"]
    command += ["--out", str(out), *(word for group in groups for word in ("--group", group))]
    run_to_end(command, "the forensics to end", log)


def owned(report: Path, played: Played) -> list[Owned]:
    """By the names that the demo's members have through their restarts, with a seat or without."""
    return [
        Owned(row["client_id"], row["partition"], row["from_ms"], row["to_ms"] or played.ended_ms)
        for row in _rows(report / "ownership", played.group)
    ]


def picture(report: Path, played: Played) -> bytes:
    """PNG."""
    intervals = [
        Interval(played.topic, one.partition, one.who, one.from_ms, min(one.to_ms, played.ended_ms))
        for one in owned(report, played)
        if one.from_ms < played.ended_ms
    ]
    marks = [
        Mark(row["started_ms"], row["cause"] or "", row["stood_still_ms"] or 0)
        for row in _rows(report / "rebalances", played.group)
        if row["started_ms"] < played.ended_ms
    ]
    return png(Timeline.of(f"{played.group}: who owned which partition", intervals, marks).drawing())


def _rows(table: Path, group: str) -> Iterator[dict[str, Any]]:
    for path in sorted(table.glob("*.parquet")):
        yield from (row for row in parquet.read_table(path).to_pylist() if row["group_id"] == group)
