"""Join orders with their payments: two topics, two sources, one query.

    python examples/spark/stream_join.py --bootstrap-server 127.0.0.1:9092 --orders orders --payments payments

Both topics have the order number as key. A payment must arrive within an hour of its order. Spark keeps an order until
then, and deletes it when the watermarks of both topics have passed that time.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import holdfast.spark  # noqa: F401 - makes Spark use this Python

parser = argparse.ArgumentParser(description="Join orders with their payments.")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
parser.add_argument("--orders", default="orders", help="the topic of the orders")
parser.add_argument("--payments", default="payments", help="the topic of the payments")
parser.add_argument("--group", default="paid-orders")
parser.add_argument("--output", default="/tmp/paid-orders", help="the directory of the Parquet files")
parser.add_argument("--checkpoint", default="/tmp/paid-orders-checkpoint")
args = parser.parse_args()

spark = SparkSession.builder.appName("join").config("spark.sql.shuffle.partitions", "2").getOrCreate()


def read(topic: str, name: str) -> DataFrame:
    rows = (
        spark.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", args.bootstrap_server)
        # Each source is a member of its own. Both can be in one group, because they read different topics.
        .option("kafka.group.id", args.group)
        .option("kafka.group.instance.id", f"{args.group}-{name}")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    columns = "CAST(key AS STRING) AS number", "CAST(CAST(value AS STRING) AS BIGINT) AS amount", "timestamp AS at"
    return rows.selectExpr(*columns).withWatermark("at", "10 minutes").alias(name)


in_time = f.expr(
    "orders.number = payments.number AND payments.at BETWEEN orders.at AND orders.at + INTERVAL 1 HOUR",
)
paid = (
    read(args.orders, "orders")
    .join(read(args.payments, "payments"), in_time, "leftOuter")
    .selectExpr("orders.number", "orders.amount", "payments.amount AS paid")
)
query = (
    paid.writeStream.format("parquet")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
