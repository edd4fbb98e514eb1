"""The memory of a query's Python processes over many batches: it must not grow."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any, Final

from benchmarks.cases.throughput import Shape
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, Plan, Result, Row, spread
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-memory"
TARGET: Final = Target("at most", 1.05)
CORES: Final = 2
SERIES: Final = "memory"
SHOWN_AT: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Parts of the run after which the page shows the figures."""
_PATIENCE_S: Final = 700.0
_PROCESSES: Final = {"reader": "the reader on the driver", "worker": "the largest worker"}


def run(plan: Plan) -> Result:
    batches = plan.pick(full=100, quick=20)
    shape = Shape(100, 12, batches * plan.pick(full=50_000, quick=5_000))
    rows: list[Row] = []
    versions: dict[str, str] = {}
    with HoldfastBroker() as broker, contextlib.ExitStack() as stack:
        topic = stack.enter_context(new_topic(broker, shape.partitions))
        options: dict[str, Any] = {"bootstrap": broker.bootstrap, "topic": topic}
        run_client(
            "produce",
            **options,
            partitions=shape.partitions,
            records=shape.records,
            record_bytes=shape.record_bytes,
            server_pid=broker.pid,
            full_batches=True,
        )
        for number in range(1, plan.rounds + 1):
            with plan.attempt(SERIES, HOLDFAST, number):
                with SparkProcess(CORES, own_source=False) as spark:
                    versions = spark.versions
                    seen = spark.ask("memory", _PATIENCE_S, **options, per_batch=shape.records // batches)
                rows.append(Row(SERIES, HOLDFAST, number, _figures(seen)))
    settings = {
        "batches": batches,
        "records": shape.records,
        "shape": shape.label,
        "cores": CORES,
        "versions": versions,
    }
    return Result(NAME, settings, rows)


def _figures(seen: dict[str, list[float]]) -> dict[str, float]:
    """At some batches, and the ratio of the last fifth to the second one, because the first is the warm-up."""
    figures: dict[str, float] = {"batches": len(seen["reader_mib"])}
    for process in _PROCESSES:
        mib = seen[f"{process}_mib"]
        fifth = len(mib) // 5
        figures[f"{process}_growth"] = statistics.median(mib[-fifth:]) / statistics.median(mib[fifth : 2 * fifth])
        for part in SHOWN_AT:
            figures[f"{process}_mib_at_{part:g}"] = mib[round(part * len(mib)) - 1]
    return figures


def section(result: Result) -> list[str]:
    batches = result.settings["batches"]
    head = (
        "memory (RSS) in MiB after batch",
        *(f"{round(part * batches)}" for part in SHOWN_AT),
        "last fifth ÷ second fifth",
        "target",
    )
    rows = [
        (
            shown,
            *(figure(result.values(SERIES, HOLDFAST, f"{process}_mib_at_{part:g}")) for part in SHOWN_AT),
            figure(result.values(SERIES, HOLDFAST, f"{process}_growth")),
            str(TARGET),
        )
        for process, shown in _PROCESSES.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f'A query with `format("holdfast")` reads {settings["records"]:,} records ({settings["shape"]}) in'
        f" {settings['batches']} batches into the noop sink. Every round uses a new Spark application with"
        f" `local[{settings['cores']}]`. Memory is the resident set size (RSS) at the end of a batch. The table shows"
        " two processes. The reader is the process in which the query is a member of its group. The worker is the"
        " largest process that reads on the executor. The ratio is the median of the last fifth of the batches divided"
        f" by the median of the second fifth. Versions: {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    return [
        Verdict(
            f"Spark, memory growth of {shown} over {result.settings['batches']} batches",
            TARGET,
            spread(result.values(SERIES, HOLDFAST, f"{process}_growth")),
        )
        for process, shown in _PROCESSES.items()
        if result.has(SERIES, HOLDFAST)
    ]
