"""How long a tiny micro-batch takes, with `format("holdfast")` and with Spark's own Kafka source."""

from __future__ import annotations

from typing import Final

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.spark_sources import SPARK
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from tests.support.apache_kafka import ApacheKafka

NAME: Final = "spark-latency"
TARGET: Final = Target("at most", 1.5)
CORES: Final = 2
PARTITIONS: Final = 12
SERIES: Final = {"3 records in 3 partitions": 3, "12 records in 12 partitions": 12}
PAUSE_S: Final = 0.1
_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_PATIENCE_S: Final = 300.0
TUNED: Final = "spark-tuned"
QUERIES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    HOLDFAST: (HOLDFAST, {}),
    SPARK: (SPARK, {}),
    TUNED: (SPARK, {"kafka.fetch.max.wait.ms": "10"}),
}
"""The source of each, and its options."""
_SHOWN: Final = {
    HOLDFAST: '`format("holdfast")`',
    SPARK: '`format("kafka")`',
    TUNED: '`format("kafka")`, `kafka.fetch.max.wait.ms=10`',
}


def run(plan: Plan) -> Result:
    batches, warm_up = plan.pick(full=20, quick=10), plan.pick(full=5, quick=3)
    rows: list[Row] = []
    with ApacheKafka(_NO_DELAY) as broker, SparkProcess(CORES, own_source=True) as spark:
        for number in range(plan.rounds + 1):
            for series, partitions in SERIES.items():
                for name in alternating(QUERIES, number):
                    source, options = QUERIES[name]
                    with plan.attempt(series, name, number):
                        with new_topic(broker, PARTITIONS) as topic:
                            figures = spark.ask(
                                "latency",
                                _PATIENCE_S,
                                source=source,
                                bootstrap=broker.bootstrap,
                                topic=topic,
                                partitions=partitions,
                                batches=batches,
                                warm_up=warm_up,
                                pause_s=PAUSE_S,
                                options=options,
                            )
                        if number:  # the first time, Java compiles the code
                            rows.append(Row(series, name, number, figures))
        versions = spark.versions
    settings = {
        "batches": batches,
        "warm_up": warm_up,
        "pause_s": PAUSE_S,
        "partitions": PARTITIONS,
        "cores": CORES,
        "versions": versions,
    }
    return Result(NAME, settings, rows)


_COLUMNS: Final = (
    ("batch duration p50, ms", "batch_p50_ms"),
    ("batch duration p90, ms", "batch_p90_ms"),
    ("record sent to end of batch, p50 ms", "trip_p50_ms"),
    ("finding the end offsets, ms", "latestOffset_ms"),
    ("planning, ms", "queryPlanning_ms"),
    ("reading, ms", "addBatch_ms"),
    ("writing the offset log, ms", "walCommit_ms"),
    ("writing the commit log, ms", "commitOffsets_ms"),
)


def section(result: Result) -> list[str]:
    head = ("", *(what for what, _ in _COLUMNS), "batch duration p50: Holdfast ÷ this row", "target")
    rows = [
        (
            f"{series}: {shown}",
            *(figure(result.values(series, query, name)) for _, name in _COLUMNS),
            times(result.ratio(series, "batch_p50_ms", over=query)) if query != HOLDFAST else "",
            str(TARGET) if query != HOLDFAST else "",
        )
        for series in SERIES
        for query, shown in _SHOWN.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A topic of {settings['partitions']} partitions in Apache Kafka gets a few records at a time. A query reads"
        " these records in one batch into the noop sink. The query has the default trigger, which starts a batch as"
        f" soon as there are records. The next records follow {settings['pause_s'] * 1000:g} ms after the batch. A"
        f" round has {settings['batches']} batches, after {settings['warm_up']} batches that are not counted. The"
        " durations are medians over the batches of a round, unless the column says otherwise. Both sources take turns"
        f" in one Spark application with `local[{settings['cores']}]`. Spark reports the duration of a batch"
        " (`triggerExecution`) and of its phases. The table also shows the time from the sending of a record to the end"
        " of its batch. With its default settings, Spark's own source took half a second longer in each task of a small"
        " batch. This is about as long as a fetch waits at the end of a log. The table therefore also shows Spark's own"
        f" source with a setting that shortens this wait. Versions: {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    found = []
    for series in SERIES:
        for query, what in ((SPARK, "Spark's own source"), (TUNED, "Spark's own source with a short fetch wait")):
            if (ratio := result.ratio(series, "batch_p50_ms", over=query)) is not None:
                found.append(Verdict(f"Spark, a batch of {series}: duration ÷ {what}", TARGET, ratio))
    return found
