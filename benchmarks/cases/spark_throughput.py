"""Rows per second through `format("holdfast")` and through Spark's own Kafka source, from the same topic."""

from __future__ import annotations

import contextlib
from typing import Final

from benchmarks.cases.throughput import Shape
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.servers import Broker, both, settle
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.spark_sources import SOURCES, SPARK
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times

NAME: Final = "spark-throughput"
RATE_TARGET: Final = Target("at least", 1.5)
CPU_TARGET: Final = Target("at most", 1.0)
CORES: Final = 2
SERIES: Final = {HOLDFAST: "topic in Holdfast", KAFKA: "topic in Apache Kafka"}
_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_PATIENCE_S: Final = 700.0
_SHOWN: Final = {HOLDFAST: '`format("holdfast")`', SPARK: '`format("kafka")`'}


def run(plan: Plan) -> Result:
    shape = Shape(100, 12, plan.pick(full=5_000_000, quick=300_000))
    rows: list[Row] = []
    with (
        both(holdfast=_NO_DELAY, kafka=_NO_DELAY) as brokers,
        contextlib.ExitStack() as stack,
        SparkProcess(CORES, own_source=True) as spark,
    ):
        topics = {name: _shelf(stack, broker, shape) for name, broker in brokers.items()}
        settle()
        for number in range(plan.rounds + 1):
            for name in alternating(brokers, number):
                for source in alternating(SOURCES, number):
                    with plan.attempt(SERIES[name], source, number):
                        figures = spark.ask(
                            "throughput",
                            _PATIENCE_S,
                            source=source,
                            bootstrap=brokers[name].bootstrap,
                            topic=topics[name],
                            records=shape.records,
                            server_pid=brokers[name].pid,
                        )
                        if number:  # the first time, Java compiles the code
                            rows.append(Row(SERIES[name], source, number, figures))
        versions = spark.versions
    settings = {"records": shape.records, "shape": shape.label, "cores": CORES, "versions": versions}
    return Result(NAME, settings, rows)


def _shelf(stack: contextlib.ExitStack, broker: Broker, shape: Shape) -> str:
    """A topic in full batches, filled once: both sources read the same bytes."""
    topic = stack.enter_context(new_topic(broker, shape.partitions))
    run_client(
        "produce",
        bootstrap=broker.bootstrap,
        topic=topic,
        partitions=shape.partitions,
        records=shape.records,
        record_bytes=shape.record_bytes,
        server_pid=broker.pid,
        full_batches=True,
    )
    return topic


_PROFILE: Final = (
    ("the JVM", "jvm_cpu_per_million"),
    ("– tasks", "jvm_tasks_cpu_per_million"),
    ("– JIT compilation", "jvm_jit_cpu_per_million"),
    ("– garbage collection", "jvm_gc_cpu_per_million"),
    ("Python workers", "workers_cpu_per_million"),
    ("– Python thread: fetch, decode to Arrow, pass to Spark", "worker_python_cpu_per_million"),
    ("– librdkafka's threads", "worker_client_cpu_per_million"),
    ("Spark in total", "cpu_per_million"),
    ("the broker", "server_cpu_per_million"),
)
_PHASES: Final = (
    ("the whole query", "seconds"),
    ("– batch", "phase_triggerExecution_s"),
    ("– – finding the end offsets", "phase_latestOffset_s"),
    ("– – planning", "phase_queryPlanning_s"),
    ("– – reading", "phase_addBatch_s"),
)


def section(result: Result) -> list[str]:
    head = (
        "",
        "rows/s",
        "rows/s within the batch",
        "Spark's CPU s/M",
        "cores used",
        "rows/s: Holdfast ÷ this row",
        "target",
        "CPU: Holdfast ÷ this row",
        "target",
    )
    rows = [
        (
            f"{series}: {shown}",
            figure(result.values(series, source, "rows_per_s")),
            figure(result.values(series, source, "batch_rows_per_s")),
            figure(result.values(series, source, "cpu_per_million")),
            figure(result.values(series, source, "cores")),
            times(result.ratio(series, "rows_per_s", over=SPARK)) if source == SPARK else "",
            str(RATE_TARGET) if source == SPARK else "",
            times(result.ratio(series, "cpu_per_million", over=SPARK)) if source == SPARK else "",
            str(CPU_TARGET) if source == SPARK else "",
        )
        for series in SERIES.values()
        for source, shown in _SHOWN.items()
    ]
    return [
        paragraph(_method(result)),
        "",
        *table(head, rows),
        "CPU seconds per million rows, by process and thread:",
        "",
        *_by_source(result, _PROFILE),
        "Elapsed time of the query and of its phases, in seconds:",
        "",
        *_by_source(result, _PHASES),
    ]


def _by_source(result: Result, lines: tuple[tuple[str, str], ...]) -> list[str]:
    columns = [(series, source) for series in SERIES.values() for source in SOURCES]
    head = ("", *(f"{series}: {_SHOWN[source]}" for series, source in columns))
    return table(head, [(what, *(figure(result.values(*column, name)) for column in columns)) for what, name in lines])


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A query reads {settings['records']:,} records ({settings['shape']}) with Trigger.AvailableNow into the noop"
        " sink, in one batch. Holdfast's source and Spark's own Kafka source take turns reading the same topic in one"
        f" Spark application with `local[{settings['cores']}]`. One warm-up round is not counted. The time is measured"
        " from the start of the query to its end. For Holdfast's source, this time includes joining the group. The"
        " table also shows the rate within the batch alone, as reported by Spark. CPU time is the total of the JVM and"
        " of all Python processes of Spark, including threads that have ended. Versions:"
        f" {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    targets = (
        ("rows/s", "rows_per_s", RATE_TARGET),
        ("Spark's CPU per million rows", "cpu_per_million", CPU_TARGET),
    )
    measured = (
        (f"Spark, {series}: {what} ÷ Spark's own source", target, result.ratio(series, name, over=SPARK))
        for series in SERIES.values()
        for what, name, target in targets
    )
    return [Verdict(what, target, ratio) for what, target, ratio in measured if ratio is not None]
