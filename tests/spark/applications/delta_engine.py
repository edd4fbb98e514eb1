"""Run by test_delta_spark: reads, streams, changes and optimizes a Delta table, with Delta's own data source."""

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

NAMES = ("topic", "partition", "offset")


def main(options: dict[str, Any]) -> None:
    builder = SparkSession.builder.appName("holdfast-delta").master("local[2]")
    settings = {
        **options["settings"],
        "spark.jars": options["jars"],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    table = options["table"]
    rows = spark.read.format("delta").load(table)
    said = {
        "version": pyspark.__version__,
        "columns": dict(rows.dtypes),
        "rows": _positions(rows),
        "values": sorted(bytes(row.value).decode() for row in rows.collect()),
        "files": len(rows.inputFiles()),
        "one_row": _read(rows.where("partition = 1 AND offset = 3")),
        "later_rows": _read(rows.where("partition = 0 AND offset >= 15")),
        "at_highest_timestamp": _read(rows.where(rows.timestamp == _highest_timestamp(rows))),
        "after_highest_timestamp": _read(rows.where(rows.timestamp > _highest_timestamp(rows))),
        "streamed": _streamed(spark, options, "first"),
    }
    spark.sql(f"DELETE FROM delta.`{table}` WHERE partition = 1 AND offset < 2")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    said["after_delete"] = _positions(spark.read.format("delta").load(table))
    spark.stop()
    Path(options["said"]).write_text(json.dumps(said))


def _read(rows: Any) -> list[int]:
    """The number of rows, and of files that are read for them."""
    return [rows.count(), len(rows.inputFiles())]


def _highest_timestamp(rows: Any) -> Any:
    return rows.selectExpr("MAX(timestamp) AS highest").first().highest


def _positions(rows: Any) -> list[list[Any]]:
    return sorted(list(row) for row in rows.select(*NAMES).collect())


def _streamed(spark: SparkSession, options: dict[str, Any], name: str) -> list[list[Any]]:
    copied = f"{options['directory']}/copied"
    query = (
        spark.readStream.format("delta")
        .load(options["table"])
        .select(*NAMES)
        .writeStream.format("parquet")
        .option("path", copied)
        .option("checkpointLocation", f"{options['directory']}/{name}")
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(120):
        raise RuntimeError("the query did not end")
    return _positions(spark.read.parquet(copied))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
