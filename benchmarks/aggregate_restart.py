"""Two members of a group, one of which is restarted: the state that each loads, and the time until it works again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.spark_application import SparkApplication
from benchmarks.steady import until
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.totals_reader import versions_of
from holdfast.spark.pipelines.aggregate.version import Version
from holdfast.spark.pipelines.location import Location

PATIENCE_S: Final = 900
TRIGGER_MS: Final = 200
SESSION_MS: Final = 180_000
"""A restart must not exceed this, however busy the machine is."""
SETTLED_S: Final = 6.0
"""Longer than it takes to learn of a rebalance and to finish the first batch after it."""
PER_BATCH: Final = 50_000


class Member(SparkApplication):
    def __init__(self, way: str, options: dict[str, str], state: Path, directory: Path) -> None:
        directory.mkdir()
        settings = {
            "way": way,
            "options": {
                "kafka.session.timeout.ms": str(SESSION_MS),
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(PER_BATCH),
                **options,
            },
            "state": str(state),
            "directory": str(directory),
            "trigger_ms": TRIGGER_MS,
        }
        super().__init__("benchmarks.aggregate_member", settings, directory)

    def has_rows(self) -> bool:
        """Since it was started."""
        self.check()
        return len(self.events) > 1

    def to_first_batch_s(self) -> float:
        """From the start of its query to the end of the first batch that had rows."""
        return self.events[1]["ended_s"] - self.events[0]["started_s"]

    def loaded_bytes(self, since_s: float = 0.0) -> float:
        return sum(one["loaded_bytes"] for one in self.events[1:] if one["ended_s"] >= since_s)


@contextmanager
def both(first: Member, second: Member) -> Iterator[None]:
    """One after the other, because Spark fails a query whose Python process needs more than ten seconds to start."""
    with ExitStack() as stack:
        for one in (first, second):
            stack.callback(one.stop)
            one.start()
            until(one.has_rows, "a query that was started has rows", PATIENCE_S)
        yield


def restarted(first: Member, second: Member) -> dict[str, float]:
    """Restarts the first one while the second continues."""
    began_s = time.time()
    first.stop()
    first.start()
    until(first.has_rows, "a restarted query has rows", PATIENCE_S)
    time.sleep(SETTLED_S)
    return {
        "to_first_batch_s": first.to_first_batch_s(),
        "own_loaded_bytes": first.loaded_bytes(),
        "others_loaded_bytes": second.loaded_bytes(began_s),
        "away_s": time.time() - SETTLED_S - began_s,
    }


def counted(state: Path) -> tuple[int, int]:
    """The number of records in the state, and its size in bytes."""
    versions = _versions(state)
    return sum(version.end for version in versions), sum(version.size_bytes for version in versions)


def where_it_ends(state: Path) -> str:
    """The startingOffsets for a group that starts at the offsets of another one."""
    offsets: dict[str, dict[str, int]] = {}
    for version in _versions(state):
        offsets.setdefault(version.topic, {})[str(version.partition)] = version.end
    return json.dumps(offsets)


def _versions(state: Path) -> list[Version]:
    store = StateStore(Location.parse(state, "state"))
    return versions_of(store)[1] if store.settings() else []
