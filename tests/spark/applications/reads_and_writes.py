"""Run by test_oldest: a batch read, a stream through the sink, and a batch write, each of a topic."""

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession


def main(options: dict[str, Any]) -> None:
    spark = _session(options)
    servers = {"kafka.bootstrap.servers": options["bootstrap"]}
    batch = spark.read.format("holdfast").options(**servers).option("subscribe", options["topic"]).load()
    _stream(spark, servers, options)
    values = batch.selectExpr("key", "value")
    values.write.format("holdfast").options(**servers).option("topic", options["batch_copy"]).mode("append").save()
    said = {
        "version": pyspark.__version__,
        "columns": batch.columns,
        "values": _values(batch),
    }
    spark.stop()
    Path(options["said"]).write_text(json.dumps(said))


def _session(options: dict[str, Any]) -> SparkSession:
    builder = SparkSession.builder.appName("holdfast-reads-and-writes")
    for name, value in options["settings"].items():
        builder = builder.config(name, value)
    return builder.master("local[2]").getOrCreate()


def _stream(spark: SparkSession, servers: dict[str, str], options: dict[str, Any]) -> None:
    member = {"kafka.group.id": options["group"], "kafka.group.instance.id": options["instance"]}
    reading = {"subscribe": options["topic"], "startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
    rows = spark.readStream.format("holdfast").options(**servers, **member, **reading).load()
    query = (
        rows.selectExpr("key", "value")
        .writeStream.format("holdfast")
        .options(**servers, topic=options["stream_copy"])
        .option("checkpointLocation", f"{options['directory']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(120):
        raise RuntimeError("the query did not come to its end")


def _values(rows: DataFrame) -> list[str]:
    return [row.value for row in rows.selectExpr("CAST(value AS STRING) AS value").collect()]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
