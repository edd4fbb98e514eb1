"""Rows per second through `land`, compared with the same source and Spark's own Parquet sink."""

from __future__ import annotations

from typing import Final

from benchmarks.land_comparison import SERIES, compare, comparison_table
from benchmarks.measure import Plan, Result
from benchmarks.spark_land import BARE, BARE_BY_DATE, LAND, WAYS
from benchmarks.spark_process import reported
from benchmarks.tables import Target, Verdict, paragraph

NAME: Final = "spark-land"
TARGET: Final = Target("at least", 0.8)
_SHOWN: Final = {
    LAND: "`land`",
    BARE: "Spark's Parquet sink",
    BARE_BY_DATE: "Spark's Parquet sink, partitioned by topic and date like `land`",
}


def run(plan: Plan) -> Result:
    return compare(NAME, plan, WAYS, own_source=False)


def section(result: Result) -> list[str]:
    return [paragraph(_method(result)), "", *comparison_table(result, _SHOWN, TARGET, BARE)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A query reads {settings['records']:,} records ({settings['shape']}) of a topic in Holdfast with"
        f" Trigger.AvailableNow, in batches of {settings['per_batch']:,}, and writes the records as Parquet files."
        " `holdfast.spark.Land` writes a Delta table and flushes its files and the log to the device. Spark's own"
        " Parquet sink reads from the same source, with headers as `Land` does, and flushes nothing. The queries take"
        " turns in one Spark application with"
        f" `local[{settings['cores']}]`. One warm-up round is not counted. The time is measured from the start of the"
        f" query to its end. Versions: {reported(settings['versions'])}."
    )


def verdicts(result: Result) -> list[Verdict]:
    ratio = result.ratio(SERIES, "rows_per_s", over=BARE)
    if ratio is None:
        return []
    return [Verdict("Spark, land: rows/s ÷ Spark's Parquet sink", TARGET, ratio)]
