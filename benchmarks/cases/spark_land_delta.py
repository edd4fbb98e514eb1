"""Rows per second through `land`, compared with Spark's own Kafka source and Delta's own data source."""

from __future__ import annotations

from typing import Final

from benchmarks.cases.throughput import Shape
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import Plan, Result, Row, alternating
from benchmarks.servers import settle
from benchmarks.spark_land import LAND, SPARK_DELTA
from benchmarks.spark_process import SparkProcess, reported
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-land-delta"
TARGET: Final = Target("at least", 1.0)
CORES: Final = 2
SERIES: Final = "topic in Holdfast"
_PATIENCE_S: Final = 700.0
_SHOWN: Final = {LAND: "`land`", SPARK_DELTA: "Spark's Kafka source and delta-spark"}


def run(plan: Plan) -> Result:
    shape = Shape(100, 12, plan.pick(full=5_000_000, quick=300_000))
    per_batch = shape.records // 3
    rows: list[Row] = []
    with HoldfastBroker() as broker, new_topic(broker, shape.partitions) as topic:
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
        with SparkProcess(CORES, own_source=True, with_delta=True) as spark:
            settle()
            given = {"bootstrap": broker.bootstrap, "topic": topic, "records": shape.records, "per_batch": per_batch}
            for number in range(plan.rounds + 1):
                for way in alternating((LAND, SPARK_DELTA), number):
                    with plan.attempt(SERIES, way, number):
                        figures = spark.ask("land", _PATIENCE_S, way=way, **given)
                        if number:  # the first time, Java compiles the code
                            rows.append(Row(SERIES, way, number, figures))
            versions = spark.versions
    settings = {
        "records": shape.records,
        "shape": shape.label,
        "per_batch": per_batch,
        "cores": CORES,
        "versions": versions,
    }
    return Result(NAME, settings, rows)


def section(result: Result) -> list[str]:
    head = ("", "rows/s", "CPU s per million rows", "files", "bytes/row", "rows/s: `land` ÷ this row", "target")
    rows = [
        (
            shown,
            figure(result.values(SERIES, way, "rows_per_s")),
            figure(result.values(SERIES, way, "cpu_per_million")),
            figure(result.values(SERIES, way, "files")),
            figure(result.values(SERIES, way, "bytes_per_row")),
            "" if way == LAND else times(result.ratio(SERIES, "rows_per_s", over=way)),
            str(TARGET) if way == SPARK_DELTA else "",
        )
        for way, shown in _SHOWN.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A query reads {settings['records']:,} records ({settings['shape']}) of a topic in Holdfast with"
        f" Trigger.AvailableNow, in batches of {settings['per_batch']:,}, and writes them, with their headers, to a"
        " Delta table that is partitioned by topic and date. One query is `holdfast.spark.Land`, which also flushes its"
        " files to the device. The other query uses Spark's own Kafka source and delta-spark, in the newest Spark for"
        " which there is a delta-spark. The queries take turns in one Spark application with"
        f" `local[{settings['cores']}]`. One warm-up round is not counted. The time is measured from the start of the"
        f" query to its end. Versions: {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    ratio = result.ratio(SERIES, "rows_per_s", over=SPARK_DELTA)
    if ratio is None:
        return []
    return [Verdict("Spark, land: rows/s ÷ Spark's Kafka source and delta-spark", TARGET, ratio)]
