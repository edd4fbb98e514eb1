"""Submitted by test_cluster: copies a topic into files, row by row with the process that had it, until asked to
stop."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType


@udf(StringType())
def seen_by() -> str:
    """The executor's Python process that a row went through, and the Holdfast that it knows."""
    import holdfast

    return json.dumps({"pid": os.getpid(), "python": sys.executable, "holdfast": holdfast.__file__})


def main(options: dict[str, Any]) -> None:
    spark = SparkSession.builder.appName("holdfast-on-cluster").getOrCreate()
    directory = Path(options["directory"])
    rows = spark.readStream.format("holdfast").options(**options["source"]).load()
    query = (
        rows.selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset")
        .withColumn("seen_by", seen_by())
        .writeStream.format("json")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    while not (directory / "stop").exists():
        query.awaitTermination(1)  # raises when the query has failed
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
