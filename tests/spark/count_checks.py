"""What a state holds, read without Spark."""

from __future__ import annotations

from typing import Any

from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.totals_reader import totals_of, versions_of
from holdfast.spark.pipelines.location import Location


def total_ends(state: Location) -> dict[int, int]:
    """Up to where each partition is counted."""
    store = StateStore(state)
    if store.settings() is None:
        return {}
    return {version.partition: version.end for version in versions_of(store)[1]}


def totals(state: Location) -> dict[tuple[int, str], tuple[Any, ...]]:
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


def unlisted_runs(state: Location) -> set[str]:
    """Runs that are there, and that the versions that count do not list."""
    store = StateStore(state)
    listed = {run.name for version in versions_of(store)[1] for run in version.runs} if store.settings() else set()
    partitions = [(topic, number) for topic in store.topics() for _, number in store.partitions(topic)]
    runs = {name for topic, number in partitions for name in store.files.names(f"topics/{topic}/{number}/runs")}
    return runs - listed
