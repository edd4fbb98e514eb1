"""Copy a topic to Parquet files on a cluster, as docs/spark.md describes in "Run on a cluster".

    pip install --target packages '.[client]'
    python -m zipfile -c packages.zip packages/*
    spark-submit --master spark://127.0.0.1:7077 --archives packages.zip#packages \\
        --conf spark.executorEnv.PYTHONPATH=packages \\
        examples/spark/cluster_app.py --bootstrap-server 127.0.0.1:9092 --topic orders --output /shared/orders

The workers need Python and the packages that PySpark requires. The archive brings Holdfast to them.
"""

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser(description="Copy a topic to Parquet files on a cluster.")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="as the driver and the workers reach it")
parser.add_argument("--topic", default="orders")
parser.add_argument("--group", default="orders-copy")
parser.add_argument("--instance-id", default="orders-copy-1")
parser.add_argument("--output", default="/shared/orders", help="a directory that the workers share")
parser.add_argument("--checkpoint", default="/shared/orders-checkpoint")
args = parser.parse_args()

spark = SparkSession.builder.appName("orders-copy").getOrCreate()
orders = (
    spark.readStream.format("holdfast")
    .option("kafka.bootstrap.servers", args.bootstrap_server)
    .option("kafka.group.id", args.group)
    # With an instance id, a restarted driver gets its partitions back without a rebalance.
    .option("kafka.group.instance.id", args.instance_id)
    .option("subscribe", args.topic)
    .option("startingOffsets", "earliest")
    # At least so many tasks per batch, even if the topic has fewer partitions.
    .option("minPartitions", "4")
    .load()
)
query = (
    orders.selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset")
    .writeStream.format("parquet")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    # Copies the available records and stops. Use processingTime="10 seconds" to run all the time.
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
