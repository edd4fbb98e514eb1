"""The measurement of `forensics` in a Spark application: the job over a history, and a check of its results."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import per_million
from benchmarks.process_tree import usage
from benchmarks.spark_sources import kind_of_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def forensics(
    spark: SparkSession, bootstrap: str, ledger: str, offsets: str, events: int, groups: int, rebalances: int
) -> dict[str, float]:
    """From the start of the job to the report in its directory."""
    from holdfast.spark import forensics as job

    with tempfile.TemporaryDirectory(prefix="forensics-") as directory:
        before, began = usage(os.getpid(), kind_of_process), time.perf_counter()
        report = job(
            spark,
            Path(directory) / "report",
            {"kafka.bootstrap.servers": bootstrap},
            ledger_topic=ledger,
            offsets_topic=offsets,
        )
        seconds = time.perf_counter() - began
        used = usage(os.getpid(), kind_of_process).since(before)
        size_bytes = sum(path.stat().st_size for path in report.path.rglob("*") if path.is_file())
    found = (report.groups, report.totals["rebalances"])
    if found != (groups, groups * rebalances):
        raise RuntimeError(f"forensics found {found} groups and rebalances of {(groups, groups * rebalances)}")
    return {
        "events": events,
        "seconds": seconds,
        "events_per_s": events / seconds,
        "cpu_s": used.total,
        "cpu_per_million": per_million(used.total, events),
        "workers_cpu_per_million": per_million(used.by_kind["workers"], events),
        "report_bytes": size_bytes,
    }
