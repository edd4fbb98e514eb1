"""Two members of a group, of which one is restarted: what either loads, and how soon the one works again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.spark_application import SparkApplication
from bench.steady import until
from holdfast.spark.pipelines.enrich.reading import versions_of
from holdfast.spark.pipelines.enrich.store import StateStore
from holdfast.spark.pipelines.enrich.version import Version

PATIENCE_S: Final = 900
TRIGGER_MS: Final = 200
SESSION_MS: Final = 180_000
"""Which a restart must not exceed, however busy the machine is."""
SETTLED_S: Final = 6.0
"""Longer than it takes until a rebalance is heard of, and the first batch after it is through."""
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
        super().__init__("bench.enrich_member", settings, directory)

    def has_rows(self) -> bool:
        """Since it was started."""
        self.check()
        return len(self.told) > 1

    def to_first_batch_s(self) -> float:
        """From the start of its query to the end of the first batch that had rows."""
        return self.told[1]["ended_s"] - self.told[0]["started_s"]

    def loaded_bytes(self, since_s: float = 0.0) -> float:
        return sum(one["loaded_bytes"] for one in self.told[1:] if one["ended_s"] >= since_s)


@contextmanager
def both(first: Member, second: Member) -> Iterator[None]:
    """One after the other: Spark gives up a query whose Python needs more than ten seconds to come up."""
    with ExitStack() as stack:
        for one in (first, second):
            stack.callback(one.stop)
            one.start()
            until(one.has_rows, "a query that was started has rows", PATIENCE_S)
        yield


def restarted(first: Member, second: Member) -> dict[str, float]:
    """The first one, while the second goes on."""
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
    """How many records the state reflects, and its bytes."""
    versions = _versions(state)
    return sum(version.end for version in versions), sum(version.size_bytes for version in versions)


def where_it_ends(state: Path) -> str:
    """As startingOffsets: for a group that begins where another one was."""
    offsets: dict[str, dict[str, int]] = {}
    for version in _versions(state):
        offsets.setdefault(version.topic, {})[str(version.partition)] = version.end
    return json.dumps(offsets)


def _versions(state: Path) -> list[Version]:
    store = StateStore(state)
    return versions_of(store)[1] if store.settings() else []
