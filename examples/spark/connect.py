"""Read and write topics through Spark Connect, as a stream and as a batch.

    sbin/start-connect-server.sh --master 'local[2]'   # in the directory of Spark
    python examples/spark/connect.py --remote sc://127.0.0.1:15002 --bootstrap-server 127.0.0.1:9092 --topic payments

The queries run in the server. This program needs only `pyspark[connect]`. The Python environment of the server needs
`holdfast[spark]`.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

parser = argparse.ArgumentParser(description="Copy large payments to a topic, and their totals to another.")
parser.add_argument("--remote", default="sc://127.0.0.1:15002", help="the address of the Spark Connect server")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="as the server reaches it")
parser.add_argument("--topic", default="payments")
parser.add_argument("--group", default="large-payments")
parser.add_argument("--copy", default="large-payments", help="the topic for the payments of 100 and more")
parser.add_argument("--totals", default="totals", help="the topic for the total of each key")
parser.add_argument("--checkpoint", default="/tmp/large-payments", help="a directory of the server")
args = parser.parse_args()

spark = SparkSession.builder.remote(args.remote).getOrCreate()
broker = {"kafka.bootstrap.servers": args.bootstrap_server}

# The stream reads the topic as a member of the group, and writes to the second topic.
member = {"kafka.group.id": args.group, "subscribe": args.topic, "startingOffsets": "earliest"}
payments = spark.readStream.format("holdfast").options(**broker, **member).load()
query = (
    payments.where("CAST(CAST(value AS STRING) AS BIGINT) >= 100")
    .select("key", "value")
    .writeStream.format("holdfast")
    .options(**broker, topic=args.copy)
    .option("checkpointLocation", args.checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# The batch reads the second topic without a group, and writes to the third topic.
large = spark.read.format("holdfast").options(**broker).option("subscribe", args.copy).load()
totals = large.groupBy("key").agg(f.sum(f.col("value").cast("string").cast("bigint")).alias("total"))
totals.selectExpr("key", "CAST(total AS STRING) AS value").write.format("holdfast").options(
    **broker, topic=args.totals
).mode("append").save()
for row in totals.selectExpr("CAST(key AS STRING) AS customer", "total").orderBy("customer").collect():
    print(f"{row.customer} paid {row.total}")
spark.stop()
