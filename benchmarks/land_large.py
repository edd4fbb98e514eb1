"""Opens a Delta table with a long log in a process of its own, and measures it: `python -m benchmarks.land_large TABLE
BEFORE COMMITS`. It prints one line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from benchmarks.land_table import HoldfastCommits, batch, from_json
from benchmarks.proc import peak_resident_mib, resident_mib
from holdfast.spark.pipelines.land.delta_table import write_checkpoint
from holdfast.spark.pipelines.location import Location


def main(location: Location, before: int, commits: int) -> dict[str, float]:
    """The table has `before` batches of one partition."""
    start_mib = resident_mib(os.getpid())
    began = time.perf_counter()
    writer = HoldfastCommits(location, partitions=1)
    open_ms = _since_ms(began)
    open_mib = resident_mib(os.getpid())
    times = []
    for number in range(before, before + commits):
        entry = batch(number, partitions=1)
        began = time.perf_counter()
        writer.commit(entry)
        times.append(_since_ms(began))
    writer.close()
    began = time.perf_counter()
    write_checkpoint(location)
    return {
        "open_ms": open_ms,
        "commit_p50_ms": statistics.median(times),
        "commit_max_ms": max(times),
        "checkpoint_ms": _since_ms(began),
        "start_mib": start_mib,
        "open_mib": open_mib,
        "peak_mib": peak_resident_mib(os.getpid()),
    }


def _since_ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    print(json.dumps(main(from_json(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
