"""Keep the last value of each key in a Delta table, with foreachBatch and an idempotent upsert.

    python examples/spark/upsert.py --bootstrap-server 127.0.0.1:9092 --topic prices --table /tmp/prices

Delivery is at least once: after a failure, a batch can be processed again. The table stays correct, because the upsert
replaces a row only if the new record has a higher offset.
"""

import argparse

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import holdfast.spark  # noqa: F401 - makes Spark use this Python

parser = argparse.ArgumentParser(description="Keep the last value of each key in a Delta table.")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
parser.add_argument("--topic", default="prices")
parser.add_argument("--group", default="price-table")
parser.add_argument("--table", default="/tmp/prices", help="the directory of the Delta table")
parser.add_argument("--checkpoint", default="/tmp/prices-checkpoint")
args = parser.parse_args()


def upsert(batch: DataFrame, _batch_id: int) -> None:
    # A merge accepts one row per key, so this keeps the last record of each key.
    last = batch.groupBy("key").agg(f.max_by("value", "offset").alias("value"), f.max("offset").alias("offset"))
    rows = last.toArrow()
    (
        DeltaTable.create(args.table, rows.schema, mode="ignore")
        .merge(rows, predicate="old.key = new.key", source_alias="new", target_alias="old")
        # All records of a key are in one partition, so their offsets can be compared.
        .when_matched_update_all(predicate="new.offset > old.offset")
        .when_not_matched_insert_all()
        .execute()
    )


spark = SparkSession.builder.appName("upsert").getOrCreate()
prices = (
    spark.readStream.format("holdfast")
    .option("kafka.bootstrap.servers", args.bootstrap_server)
    .option("kafka.group.id", args.group)
    .option("subscribe", args.topic)
    .option("startingOffsets", "earliest")
    # The upsert collects the keys of a batch on the driver. This limits their number.
    .option("maxOffsetsPerTrigger", "100000")
    .load()
)
query = (
    prices.where("key IS NOT NULL")
    .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "offset")
    .writeStream.foreachBatch(upsert)
    .option("checkpointLocation", args.checkpoint)
    # Processes the available records and stops. Use processingTime="10 seconds" to run all the time.
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
