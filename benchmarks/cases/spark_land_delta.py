"""Rows per second through `land`, compared with Spark's own Kafka source and Delta's own data source."""

from __future__ import annotations

from typing import Final

from benchmarks.land_comparison import SERIES, compare, comparison_table
from benchmarks.measure import Plan, Result
from benchmarks.spark_land import LAND, SPARK_DELTA
from benchmarks.spark_process import reported
from benchmarks.tables import Target, Verdict, paragraph

NAME: Final = "spark-land-delta"
TARGET: Final = Target("at least", 1.0)
_SHOWN: Final = {LAND: "`land`", SPARK_DELTA: "Spark's Kafka source and delta-spark"}


def run(plan: Plan) -> Result:
    return compare(NAME, plan, (LAND, SPARK_DELTA), own_source=True, with_delta=True)


def section(result: Result) -> list[str]:
    return [paragraph(_method(result)), "", *comparison_table(result, _SHOWN, TARGET, SPARK_DELTA)]


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
