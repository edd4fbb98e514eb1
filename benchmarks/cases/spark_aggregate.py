"""Totals of keys with `aggregate`, compared with Spark's own stateful aggregation with RocksDB, on the same data."""

from __future__ import annotations

from typing import Final

from benchmarks.keyed_records import produce_keyed
from benchmarks.librdkafka import new_topic
from benchmarks.measure import Plan, Result, Row, alternating
from benchmarks.servers import settle
from benchmarks.spark_aggregate import AGGREGATE, ROCKSDB, WAYS
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-aggregate"
TARGET: Final = Target("at least", 1.0)
CORES: Final = 2
PARTITIONS: Final = 12
VALUE_BYTES: Final = 20
SUMS: Final = "count and sum"
LAST: Final = "count, sum and last value"
SERIES: Final = (SUMS, LAST)
_PATIENCE_S: Final = 1000.0
_SHOWN: Final = {AGGREGATE: "`aggregate`", ROCKSDB: "Spark's aggregation, RocksDB"}


def run(plan: Plan) -> Result:
    keys, touched = plan.pick(full=1_000_000, quick=50_000), plan.pick(full=100_000, quick=5_000)
    batches = plan.pick(full=10, quick=3)
    rows: list[Row] = []
    with HoldfastBroker() as broker, new_topic(broker, PARTITIONS) as topic:
        records = produce_keyed(broker.bootstrap, topic, PARTITIONS, keys, batches, touched, VALUE_BYTES)
        with SparkProcess(CORES, own_source=False) as spark:
            settle()
            for number in range(plan.rounds + 1):
                for series in SERIES:
                    for way in alternating(WAYS, number):
                        with plan.attempt(series, way, number):
                            figures = spark.ask(
                                "aggregate",
                                _PATIENCE_S,
                                way=way,
                                bootstrap=broker.bootstrap,
                                topic=topic,
                                keys=keys,
                                records=records,
                                per_batch=touched,
                                cores=CORES,
                                last=series == LAST,
                            )
                            if number:  # the first time, Java compiles the code
                                rows.append(Row(series, way, number, figures))
            versions = spark.versions
    settings = {
        "keys": keys,
        "touched": touched,
        "batches": batches,
        "partitions": PARTITIONS,
        "cores": CORES,
        "versions": versions,
    }
    return Result(NAME, settings, rows)


def section(result: Result) -> list[str]:
    head = (
        "",
        "",
        "rows/s",
        "median batch, s",
        "longest batch, s",
        "rows/s of all batches",
        "rows/s: `aggregate` ÷ this row",
        "target",
    )
    rows = [
        (
            series,
            shown,
            figure(result.values(series, way, "rows_per_s")),
            figure(result.values(series, way, "batch_s")),
            figure(result.values(series, way, "longest_batch_s")),
            figure(result.values(series, way, "all_rows_per_s")),
            times(result.ratio(series, "rows_per_s", over=ROCKSDB)) if way == ROCKSDB else "",
            str(TARGET) if way == ROCKSDB else "",
        )
        for series in SERIES
        for way, shown in _SHOWN.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A topic of {settings['partitions']} partitions in Holdfast has one record for each of {settings['keys']:,}"
        f" keys, followed by {settings['batches']} sets of records with {settings['touched']:,} random keys each. Two"
        f" queries read the topic with Trigger.AvailableNow in batches of {settings['touched']:,} and keep the totals"
        " of each key. One query uses `holdfast.spark.Aggregate`. The other query reads the same source and uses"
        ' `groupBy("key").agg(…)` in update mode, RocksDB with changelog checkpoints, and as many shuffle partitions as'
        f" cores. The queries take turns in one Spark application with `local[{settings['cores']}]`. One warm-up round"
        " is not counted. The first three columns of figures include only batches in which the state has all keys."
        f" Spark reports all durations. Versions: {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    found = [(series, result.ratio(series, "rows_per_s", over=ROCKSDB)) for series in SERIES]
    return [
        Verdict(f"Spark, aggregate, {series}: rows/s ÷ Spark's own aggregation with RocksDB", TARGET, ratio)
        for series, ratio in found
        if ratio is not None
    ]
