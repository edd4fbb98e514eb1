"""What a state holds, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.totals_reader import totals_of, versions_of


def total_ends(state: Path) -> dict[int, int]:
    """Up to where each partition is counted."""
    store = StateStore(state)
    if store.settings() is None:
        return {}
    return {version.partition: version.end for version in versions_of(store)[1]}


def totals(state: Path) -> dict[tuple[int, str], tuple[Any, ...]]:
    """By partition and key: count, sum, last value and its offset."""
    store = StateStore(state)
    settings, versions = versions_of(store)
    rows = [row for version in versions for row in totals_of(store, settings, version).to_pylist()]
    found = {
        (row["partition"], row["key"].decode()): (row["count"], row["sum"], int(row["last"]), row["last_offset"])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def unlisted_runs(state: Path) -> set[str]:
    """Runs that are there, and that the versions that count do not list."""
    store = StateStore(state)
    listed = {run.name for version in versions_of(store)[1] for run in version.runs} if store.settings() else set()
    return {path.name for path in state.glob("topics/*/*/runs/*.arrow")} - listed
