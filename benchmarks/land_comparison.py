"""A comparison of `land` with other ways from a topic to a table, in one Spark application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.cases.throughput import Shape
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import Plan, Result, Row, alternating
from benchmarks.servers import settle
from benchmarks.spark_land import LAND
from benchmarks.spark_process import SparkProcess
from benchmarks.tables import Target, figure, table, times
from tests.support.holdfast_broker import HoldfastBroker

CORES: Final = 2
SERIES: Final = "topic in Holdfast"
_PATIENCE_S: Final = 700.0


def compare(name: str, plan: Plan, ways: tuple[str, ...], *, own_source: bool, with_delta: bool = False) -> Result:
    """The ways take turns. The last two arguments are those of `SparkProcess`."""
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
        with SparkProcess(CORES, own_source=own_source, with_delta=with_delta) as spark:
            settle()
            given = {"bootstrap": broker.bootstrap, "topic": topic, "records": shape.records, "per_batch": per_batch}
            for number in range(plan.rounds + 1):
                for way in alternating(ways, number):
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
    return Result(name, settings, rows)


def comparison_table(result: Result, shown: Mapping[str, str], target: Target, target_way: str) -> list[str]:
    """A row for each way, with its name on the page."""
    head = ("", "rows/s", "CPU s per million rows", "files", "bytes/row", "rows/s: `land` ÷ this row", "target")
    rows = [
        (
            name,
            figure(result.values(SERIES, way, "rows_per_s")),
            figure(result.values(SERIES, way, "cpu_per_million")),
            figure(result.values(SERIES, way, "files")),
            figure(result.values(SERIES, way, "bytes_per_row")),
            "" if way == LAND else times(result.ratio(SERIES, "rows_per_s", over=way)),
            str(target) if way == target_way else "",
        )
        for way, name in shown.items()
    ]
    return table(head, rows)
