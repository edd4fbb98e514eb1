"""The streaming table `orders`: every run adds the new records of the topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="All orders of the topic, each once")
def orders() -> DataFrame:
    rows = (
        spark.readStream.format("holdfast")
        .option("kafka.bootstrap.servers", spark.conf.get("spark.orders.bootstrap-server"))
        .option("kafka.group.id", spark.conf.get("spark.orders.group"))
        .option("subscribe", spark.conf.get("spark.orders.topic"))
        .option("startingOffsets", "earliest")
        # A full refresh deletes the table and its checkpoint. This option makes it read the topic again.
        .option("newCheckpoint", "startingOffsets")
        .load()
    )
    return rows.selectExpr(
        "CAST(key AS STRING) AS customer",
        "CAST(CAST(value AS STRING) AS BIGINT) AS amount",
        "topic",
        "partition",
        "offset",
    )
