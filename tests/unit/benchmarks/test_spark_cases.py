"""The Spark cases compare what was measured with their targets; only `python -m benchmarks` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import land_comparison
from benchmarks.cases import (
    spark_aggregate,
    spark_aggregate_restart,
    spark_land,
    spark_latency,
    spark_memory,
    spark_rolling_restart,
    spark_throughput,
)
from benchmarks.measure import HOLDFAST, Result, Row
from benchmarks.process_tree import of_kind, tree, usage
from benchmarks.spark_aggregate import ROCKSDB
from benchmarks.spark_land import BARE, BARE_BY_DATE, LAND
from benchmarks.spark_session import _latencies
from benchmarks.spark_sources import SPARK, kind_of_process

VERSIONS = {"Spark": "4.3.0"}


def throughput(ours: float, theirs: float, our_cpu: float = 1.0) -> Result:
    rows = [
        Row(series, source, 1, {"rows_per_s": rate, "cpu_per_million": cpu})
        for series in spark_throughput.SERIES.values()
        for source, rate, cpu in ((HOLDFAST, ours, our_cpu), (SPARK, theirs, 1.0))
    ]
    settings = {"records": 10, "shape": "100 B", "cores": 2, "versions": VERSIONS}
    return Result(spark_throughput.NAME, settings, rows)


def latency(ours: float, theirs: float, tuned: float) -> Result:
    took = {HOLDFAST: ours, SPARK: theirs, spark_latency.TUNED: tuned}
    rows = [
        Row(series, query, 1, {"batch_p50_ms": ms}) for series in spark_latency.SERIES for query, ms in took.items()
    ]
    settings = {"batches": 1, "warm_up": 1, "pause_s": 0.1, "partitions": 12, "cores": 2, "versions": VERSIONS}
    return Result(spark_latency.NAME, settings, rows)


def rolled(rebalances: float, gap_s: float) -> Result:
    figures = {"rebalances": rebalances, "gap_s": gap_s, "control_gap_s": 1.0}
    rows = [Row(series, HOLDFAST, 1, figures) for series in (spark_rolling_restart.STATIC, "dynamic")]
    return Result(
        spark_rolling_restart.NAME, {"queries": 3, "partitions": 12, "trigger_ms": 200, "session_ms": 180_000}, rows
    )


def remembered(worker_mib: list[float]) -> Result:
    figures = spark_memory._figures({"reader_mib": [100.0] * len(worker_mib), "worker_mib": worker_mib})
    settings = {"batches": len(worker_mib), "records": 1, "shape": "100 B", "cores": 2, "versions": VERSIONS}
    return Result(spark_memory.NAME, settings, [Row(spark_memory.SERIES, HOLDFAST, 1, figures)])


def landed(delta: float, bare: float) -> Result:
    rates = {LAND: delta, BARE: bare, BARE_BY_DATE: bare}
    rows = [Row(land_comparison.SERIES, way, 1, {"rows_per_s": rate}) for way, rate in rates.items()]
    settings = {"records": 10, "shape": "100 B", "per_batch": 5, "cores": 2, "versions": VERSIONS}
    return Result(spark_land.NAME, settings, rows)


def counted(ours: float, theirs: float) -> Result:
    rows = [
        Row(series, way, 1, {"rows_per_s": rate})
        for series in spark_aggregate.SERIES
        for way, rate in ((HOLDFAST, ours), (ROCKSDB, theirs))
    ]
    settings = {"keys": 10, "touched": 5, "batches": 2, "partitions": 12, "cores": 2, "versions": VERSIONS}
    return Result(spark_aggregate.NAME, settings, rows)


def restarted(others_loaded_bytes: float, seconds: float) -> Result:
    figures = {"own_loaded_bytes": 0.0, "others_loaded_bytes": others_loaded_bytes, "away_s": 20.0}
    took_s = {spark_aggregate_restart.STATIC: seconds, spark_aggregate_restart.DYNAMIC: 9.0, "stateless": 2.0}
    rows = [Row(series, HOLDFAST, 1, {**figures, "to_first_batch_s": took}) for series, took in took_s.items()]
    settings = {"keys": 10, "value_bytes": 1000, "state_bytes": 10**9, "partitions": 12, "session_ms": 180_000}
    return Result(spark_aggregate_restart.NAME, settings, rows)


@pytest.mark.parametrize(("ours", "met"), [(101.0, True), (99.0, False)])
def test_totals_are_kept_as_fast_as_by_sparks_own_aggregation(ours: float, met: bool) -> None:
    assert [one.met for one in spark_aggregate.verdicts(counted(ours, 100.0))] == [met, met]


@pytest.mark.parametrize(
    ("loaded_bytes", "seconds", "met"), [(0, 3.9, [True, True]), (1, 3.9, [False, True]), (0, 4.1, [True, False])]
)
def test_a_member_with_state_loads_nothing_and_is_soon_back(
    loaded_bytes: float, seconds: float, met: list[bool]
) -> None:
    assert [one.met for one in spark_aggregate_restart.verdicts(restarted(loaded_bytes, seconds))] == met


@pytest.mark.parametrize(("ours", "met"), [(80.0, True), (79.0, False)])
def test_landing_into_delta_is_nearly_as_fast_as_parquet_alone(ours: float, met: bool) -> None:
    result = landed(ours, 100.0)

    assert [one.met for one in spark_land.verdicts(result)] == [met]
    assert any("`land`" in line for line in spark_land.section(result))


@pytest.mark.parametrize(("ours", "cpu", "met"), [(150.0, 1.0, [True, True]), (149.0, 1.01, [False, False])])
def test_rows_come_faster_than_from_sparks_own_source_and_cost_no_more(
    ours: float, cpu: float, met: list[bool]
) -> None:
    verdicts = spark_throughput.verdicts(throughput(ours, 100.0, cpu))

    assert [one.met for one in verdicts] == met * len(spark_throughput.SERIES)


def test_a_tiny_batch_is_held_against_sparks_own_source_with_and_without_its_wait() -> None:
    verdicts = spark_latency.verdicts(latency(160.0, 1000.0, 100.0))

    assert [one.met for one in verdicts] == [True, False] * len(spark_latency.SERIES)


@pytest.mark.parametrize(
    ("rebalances", "gap_s", "met"), [(0, 2.0, [True, True]), (1, 1.0, [False, True]), (0, 2.1, [True, False])]
)
def test_a_rolling_restart_causes_no_rebalance_and_no_gap(rebalances: float, gap_s: float, met: list[bool]) -> None:
    verdicts = spark_rolling_restart.verdicts(rolled(rebalances, gap_s))

    assert [one.met for one in verdicts] == met


@pytest.mark.parametrize(
    ("growth_mib", "met"),
    [(0.0, [True, True]), (0.05, [True, True]), (0.2, [True, False])],
    ids=["flat", "5 %", "20 %"],
)
def test_memory_that_grows_with_the_batches_is_not_flat(growth_mib: float, met: list[bool]) -> None:
    # The first batches warm up, and what they add is not held against anybody.
    mib = [50.0 + 5 * batch if batch < 10 else 100.0 + growth_mib * batch for batch in range(100)]

    verdicts = spark_memory.verdicts(remembered(mib))

    assert [one.met for one in verdicts] == met


@pytest.mark.parametrize(
    ("case", "result"),
    [
        (spark_throughput, throughput(1.0, 1.0)),
        (spark_latency, latency(1.0, 1.0, 1.0)),
        (spark_rolling_restart, rolled(0, 1.0)),
        (spark_memory, remembered([100.0] * 100)),
        (spark_aggregate, counted(1.0, 1.0)),
        (spark_aggregate_restart, restarted(0, 1.0)),
    ],
    ids=lambda value: value.NAME if hasattr(value, "NAME") else "",
)
def test_a_section_explains_itself_and_has_a_table(case: Any, result: Result) -> None:
    section = case.section(result)

    assert section[0]
    assert any(line.startswith("| ---") for line in section)


def test_a_record_that_waits_for_the_second_batch_counts_until_its_end() -> None:
    # given two records sent at 10.0 and 11.0, and a batch of a second for each
    batches = [_batch("1970-01-01T00:00:10.500Z", 1), _batch("1970-01-01T00:00:12.000Z", 1)]

    figures = _latencies([*batches, _batch("1970-01-01T00:00:13.000Z", 1)], [10.0, 11.0, 12.5], 1, warm_up=0)

    assert figures["trip_p50_ms"] == pytest.approx(1500)
    assert figures["batch_p50_ms"] == 1000
    assert figures["batches"] == 3


def _batch(timestamp: str, rows: int) -> dict[str, Any]:
    return {"timestamp": timestamp, "numInputRows": rows, "durationMs": {"triggerExecution": 1000, "addBatch": 400}}


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that has worked and ended, below one that waits."""
    works = "import time\nwhile time.process_time() < 0.3: pass"
    waits = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {works!r}]); print(1, flush=True); input()"
    command = [sys.executable, "-c", waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_the_cpu_time_of_a_process_that_has_ended_is_counted(parent: subprocess.Popen[str]) -> None:
    used = usage(parent.pid, lambda _command: "any")

    assert used.ended >= 0.29
    assert used.total == pytest.approx(used.ended + used.by_kind["any"])


def test_processes_below_a_process_are_found_by_their_command(parent: subprocess.Popen[str]) -> None:
    assert parent.pid in set(tree(os.getpid()))
    assert of_kind(os.getpid(), lambda command: "it" if "process_time" in command else "", "it") == [parent.pid]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/lib/jvm/bin/java -cp /x/pyspark/jars org.apache.spark.deploy.SparkSubmit", "jvm"),
        ("python3 -m pyspark.daemon pyspark.worker ", "workers"),
        ("python3 -m pyspark.daemon pyspark.sql.worker.create_data_source", "other"),
        ("python3 -m pyspark.sql.streaming.python_streaming_source_runner", "reader"),
    ],
)
def test_what_a_process_of_spark_is_there_for(command: str, kind: str) -> None:
    assert kind_of_process(command) == kind
