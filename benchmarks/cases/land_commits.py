"""The time of a commit to the Delta table of `land`, in tables of different sizes, on a disk and in S3."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.land_table import PARTITIONS, DeltaRsCommits, HoldfastCommits, batch, table_with, to_json
from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating, per_million, spread
from benchmarks.results import REPOSITORY
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import S3Emulator, s3_emulator

NAME: Final = "land-commits"
DELTA_RS: Final = "delta-rs"
WAYS: Final[dict[str, Callable[[Location], HoldfastCommits | DeltaRsCommits]]] = {
    HOLDFAST: HoldfastCommits,
    DELTA_RS: DeltaRsCommits,
}
DISK: Final = "disk"
S3: Final = "S3 emulator"
TARGET: Final = Target("at most", 200, " ms")
LARGE: Final = 10_000
"""Commits in the log of the large table."""
LONGEST: Final = 100_000
"""Commits in the longest log. Each has one file, so that the table has about as many files as the large table."""
_PATIENCE_S: Final = 600.0


def run(plan: Plan) -> Result:
    large = plan.pick(full=LARGE, quick=100)
    commits = plan.pick(full=40, quick=3)
    rows: list[Row] = []
    with s3_emulator() as s3:
        for store, before in ((DISK, 0), (DISK, large), (S3, 0), (S3, large)):
            rows += _series(plan, s3, store, before, commits)
    longest = plan.pick(full=LONGEST, quick=300)
    rows += _longest(plan, longest, commits)
    return Result(NAME, {"partitions": PARTITIONS, "commits": commits, "large": large, "longest": longest}, rows)


def _longest(plan: Plan, before: int, commits: int) -> list[Row]:
    """A process for each round, because the memory is measured."""
    series, rows = longest_series(before), []
    with tempfile.TemporaryDirectory(prefix="land-commits-") as directory:
        location = Location.parse(Path(directory) / "lake")
        table_with(location, before, partitions=1)
        for number in range(plan.rounds + 1):
            with plan.attempt(series, HOLDFAST, number):
                end = before + number * commits
                command = [sys.executable, "-m", "benchmarks.land_large", to_json(location), str(end), str(commits)]
                done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=_PATIENCE_S)
                if number:  # the first time, the files are not cached
                    rows.append(Row(series, HOLDFAST, number, json.loads(done.stdout)))
    return rows


def longest_series(before: int) -> str:
    return f"{DISK}, {before:,} commits of one file in the log"


def _series(plan: Plan, s3: S3Emulator, store: str, before: int, commits: int) -> list[Row]:
    """A large table takes minutes to write, so all rounds use one: their commits hardly make it larger."""
    series, rows = series_of(store, before), []
    with contextlib.ExitStack() as tables:
        location, end = None, before
        for number in range(plan.rounds + 1):
            for way in alternating(tuple(WAYS), number):
                with plan.attempt(series, way, number):
                    if location is None or not before:
                        location, end = tables.enter_context(_table(store, s3)), before
                        table_with(location, before)
                    figures = _measure(way, location, end, commits)
                    end += commits
                    if number:
                        rows.append(Row(series, way, number, figures))
    return rows


def series_of(store: str, before: int) -> str:
    return f"{store}, {before:,} commits in the log"


@contextlib.contextmanager
def _table(store: str, s3: S3Emulator) -> Iterator[Location]:
    if store == S3:
        yield Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)
        return
    with tempfile.TemporaryDirectory(prefix="land-commits-") as directory:
        yield Location.parse(Path(directory) / "lake")


def _measure(way: str, location: Location, before: int, commits: int) -> dict[str, float]:
    began = time.perf_counter()
    writer = WAYS[way](location)
    opened_s = time.perf_counter() - began
    times, cpu_s = [], 0.0
    for number in range(before, before + commits):
        entry = batch(number)
        cpu, began = time.process_time(), time.perf_counter()
        writer.commit(entry)
        times.append((time.perf_counter() - began) * 1000)
        cpu_s += time.process_time() - cpu
    writer.close()
    return {
        "open_ms": opened_s * 1000,
        "commit_p50_ms": statistics.median(times),
        "commit_max_ms": max(times),
        "cpu_per_million": per_million(cpu_s, commits),
    }


def _all_series(result: Result) -> list[str]:
    large = result.settings["large"]
    return [series_of(store, before) for store in (DISK, S3) for before in (0, large)]


def section(result: Result) -> list[str]:
    head = ("table", "committed by", "open, ms", "commit, ms (median)", "commit, ms (highest)", "CPU ms per commit")
    rows = [
        (
            series,
            "Holdfast" if way == HOLDFAST else "delta-rs",
            figure(result.values(series, way, "open_ms")),
            figure(result.values(series, way, "commit_p50_ms")),
            figure(result.values(series, way, "commit_max_ms")),
            figure([value / 1000 for value in result.values(series, way, "cpu_per_million")]),
        )
        for series in _all_series(result)
        for way in WAYS
    ]
    return [paragraph(_method(result)), "", *table(head, rows), *_longest_section(result)]


def _longest_section(result: Result) -> list[str]:
    """Empty for results of runs before this was measured."""
    longest = result.settings.get("longest")
    if longest is None:
        return []
    shown = {
        "open, ms": "open_ms",
        "commit, ms (median)": "commit_p50_ms",
        "commit, ms (highest)": "commit_max_ms",
        "checkpoint, ms": "checkpoint_ms",
        "memory before, MiB": "start_mib",
        "with the open table, MiB": "open_mib",
        "highest, MiB": "peak_mib",
    }
    values = [figure(result.values(longest_series(longest), HOLDFAST, name)) for name in shown.values()]
    text = (
        f"Another table on a disk has {longest:,} commits of one file each and a checkpoint. A process opens the table,"
        f" commits {result.settings['commits']} batches of one file and writes a checkpoint. The memory is the resident"
        " set of this process, and includes the libraries."
    )
    return ["", paragraph(text), "", *table(("table", *shown), [(longest_series(longest), *values)])]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A writer commits {settings['commits']} batches of {settings['partitions']} files, one for each partition, to"
        f" a Delta table. The table has no commits before, or at least {settings['large']:,} with"
        f" {settings['large'] * settings['partitions']:,} files and a checkpoint. The times do not include writing the"
        " files. Holdfast creates the entry of the log itself, and flushes it to the device on a disk. The other rows"
        " show the same commits by delta-rs, which does not flush. The S3 emulator is moto, which serves one request at"
        " a time on the same machine. Its times show the number of requests, not the speed of a real S3."
    )


def verdicts(result: Result) -> list[Verdict]:
    series = series_of(DISK, result.settings["large"])
    values = result.values(series, HOLDFAST, "commit_p50_ms")
    if not values:
        return []
    return [Verdict("Delta commit of 12 partitions, disk, large table", TARGET, spread(values))]
