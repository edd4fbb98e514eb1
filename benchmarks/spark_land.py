"""The measurements of `land` in a Spark application: a topic to Parquet, with manifests and without."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import HOLDFAST
from benchmarks.spark_sources import stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAND: Final = HOLDFAST
BARE: Final = "bare"
BARE_BY_DATE: Final = "bare-by-date"
WAYS: Final = (LAND, BARE, BARE_BY_DATE)
PATIENCE_S: Final = 600


def land(spark: SparkSession, way: str, bootstrap: str, topic: str, records: int, per_batch: int) -> dict[str, float]:
    """The whole topic, in batches, from the start of the query to its end."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_batch)}
    with tempfile.TemporaryDirectory(prefix="land-") as directory:
        began = time.perf_counter()
        if way == LAND:
            _land(spark, bootstrap, topic, options, Path(directory))
        else:
            _bare(spark, bootstrap, topic, options, Path(directory), by_date=way == BARE_BY_DATE)
        seconds = time.perf_counter() - began
        landed, files, size_bytes = _count(spark, way, Path(directory))
    if landed != records:
        raise RuntimeError(f"{way} has {landed} of {records} records")
    return {
        "records": records,
        "seconds": seconds,
        "rows_per_s": records / seconds,
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
    rows = stream(spark, HOLDFAST, bootstrap, topic, options)
    if by_date:
        rows = rows.selectExpr("*", "CAST(timestamp AS DATE) AS date")
    writer: Any = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
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
    rows = read_landed(spark, table) if way == LAND else spark.read.parquet(str(table))
    files = list(table.rglob("*.parquet"))
    return rows.count(), len(files), sum(path.stat().st_size for path in files)
