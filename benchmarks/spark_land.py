"""The measurements of `land` in a Spark application, and of other ways from a topic to Parquet files."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import HOLDFAST, per_million
from benchmarks.process_tree import usage
from benchmarks.spark_sources import SPARK, kind_of_process, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAND: Final = HOLDFAST
BARE: Final = "bare"
BARE_BY_DATE: Final = "bare-by-date"
WAYS: Final = (LAND, BARE, BARE_BY_DATE)
SPARK_DELTA: Final = "spark-delta"
"""Spark's own Kafka source and Delta's own data source."""
PATIENCE_S: Final = 600


def land(spark: SparkSession, way: str, bootstrap: str, topic: str, records: int, per_batch: int) -> dict[str, float]:
    """The whole topic, in batches, from the start of the query to its end."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_batch)}
    with tempfile.TemporaryDirectory(prefix="land-") as directory:
        before, began = usage(os.getpid(), kind_of_process), time.perf_counter()
        if way == LAND:
            _land(spark, bootstrap, topic, options, Path(directory))
        elif way == SPARK_DELTA:
            _spark_delta(spark, bootstrap, topic, options, Path(directory))
        else:
            _bare(spark, bootstrap, topic, options, Path(directory), by_date=way == BARE_BY_DATE)
        seconds = time.perf_counter() - began
        used = usage(os.getpid(), kind_of_process).since(before)
        landed, files, size_bytes = _count(spark, way, Path(directory))
    if landed != records:
        raise RuntimeError(f"{way} has {landed} of {records} records")
    return {
        "records": records,
        "seconds": seconds,
        "rows_per_s": records / seconds,
        "cpu_per_million": per_million(used.total, records),
        "files": files,
        "bytes_per_row": size_bytes / records,
    }


def _land(spark: SparkSession, bootstrap: str, topic: str, options: dict[str, str], directory: Path) -> None:
    from holdfast.spark import Land

    own = {"kafka.group.id": f"bench-{uuid.uuid4().hex}", "kafka.group.instance.id": "bench-1"}
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **own, **options}
    query = Land(spark, directory / "table", given, checkpoint=directory / "checkpoint")
    query.start(availableNow=True)
    if not query.wait(PATIENCE_S):
        query.stop()
        raise RuntimeError(f"the query took longer than {PATIENCE_S} s")


def _bare(
    spark: SparkSession, bootstrap: str, topic: str, options: dict[str, str], directory: Path, *, by_date: bool
) -> None:
    rows = stream(spark, HOLDFAST, bootstrap, topic, {**options, "includeHeaders": "true"})
    _write(rows, "parquet", directory, by_date=by_date)


def _spark_delta(spark: SparkSession, bootstrap: str, topic: str, options: dict[str, str], directory: Path) -> None:
    rows = stream(spark, SPARK, bootstrap, topic, {**options, "includeHeaders": "true"})
    _write(rows, "delta", directory, by_date=True)


def _write(rows: DataFrame, sink: str, directory: Path, *, by_date: bool) -> None:
    if by_date:
        rows = rows.selectExpr("*", "CAST(timestamp AS DATE) AS date")
    writer: Any = rows.writeStream.format(sink).option("checkpointLocation", str(directory / "checkpoint"))
    if by_date:
        writer = writer.partitionBy("topic", "date")
    query = writer.option("path", str(directory / "table")).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(PATIENCE_S):
            raise RuntimeError(f"the query took longer than {PATIENCE_S} s")
    finally:
        query.stop()


def _count(spark: SparkSession, way: str, directory: Path) -> tuple[int, int, int]:
    """The rows, the files and their bytes."""
    from holdfast.spark import read_landed

    table = directory / "table"
    if way == SPARK_DELTA:
        rows = spark.read.format("delta").load(str(table))
    else:
        rows = read_landed(spark, table) if way == LAND else spark.read.parquet(str(table))
    files = [path for path in table.rglob("*.parquet") if "_delta_log" not in path.parts]
    return rows.count(), len(files), sum(path.stat().st_size for path in files)
