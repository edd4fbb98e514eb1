"""Count the records of each minute of event time, and write each minute once, when it is complete.

    python examples/spark/event_time_windows.py --bootstrap-server 127.0.0.1:9092 --topic clicks --output /tmp/clicks

The event time is the timestamp of the record, which its producer sets. A minute is complete when the newest record is
two minutes younger than its end. Records that arrive later are not counted.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import holdfast.spark  # noqa: F401 - makes Spark use this Python

parser = argparse.ArgumentParser(description="Count the records of each minute of event time.")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
parser.add_argument("--topic", default="clicks")
parser.add_argument("--group", default="clicks-per-minute")
parser.add_argument("--output", default="/tmp/clicks", help="the directory of the Parquet files")
parser.add_argument("--checkpoint", default="/tmp/clicks-checkpoint")
args = parser.parse_args()

# The number of shuffle partitions is fixed when the checkpoint is created. Spark's default is 200.
spark = SparkSession.builder.appName("windows").config("spark.sql.shuffle.partitions", "2").getOrCreate()
clicks = (
    spark.readStream.format("holdfast")
    .option("kafka.bootstrap.servers", args.bootstrap_server)
    # The counts are in the checkpoint of this query, so the query must be the only member of its group.
    .option("kafka.group.id", args.group)
    .option("subscribe", args.topic)
    .option("startingOffsets", "earliest")
    .load()
)
counts = (
    clicks.selectExpr("CAST(key AS STRING) AS page", "timestamp")
    .withWatermark("timestamp", "2 minutes")
    .groupBy(f.window("timestamp", "1 minute"), "page")
    .count()
    .select("window.start", "page", "count")
)
query = (
    counts.writeStream.format("parquet")
    .outputMode("append")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
