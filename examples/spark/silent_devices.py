"""Report devices that have sent nothing for ten minutes, with transformWithState: one state and one timer per device.

    python examples/spark/silent_devices.py --bootstrap-server 127.0.0.1:9092 --topic readings --output /tmp/silent

The key of a record is the device, and its timestamp is the event time.
"""

import argparse
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast.spark  # noqa: F401 - makes Spark use this Python

SILENCE_MS = int(timedelta(minutes=10).total_seconds() * 1000)

parser = argparse.ArgumentParser(description="Report devices that have sent nothing for ten minutes.")
parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
parser.add_argument("--topic", default="readings")
parser.add_argument("--group", default="silent-devices")
parser.add_argument("--output", default="/tmp/silent", help="the directory of the Parquet files")
parser.add_argument("--checkpoint", default="/tmp/silent-checkpoint")
args = parser.parse_args()


class SilentDevices(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("device", "records BIGINT, last_ms BIGINT")

    # Spark passes the arguments by these names.
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        before = self._state.get()
        records, last_ms = before or (0, 0)
        for row in rows:
            records, last_ms = records + 1, max(last_ms, row.at_ms)
        self._state.update((records, last_ms))
        if before:  # a device has one timer, ten minutes after its last record
            self._handle.deleteTimer(before[1] + SILENCE_MS)
        self._handle.registerTimer(last_ms + SILENCE_MS)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        records, last_ms = self._state.get() or (0, 0)
        self._state.clear()
        yield Row(device=key[0], records=records, last_ms=last_ms)


spark = (
    SparkSession.builder.appName("silent-devices")
    .config("spark.sql.shuffle.partitions", "2")
    # transformWithState requires this state store.
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)
readings = (
    spark.readStream.format("holdfast")
    .option("kafka.bootstrap.servers", args.bootstrap_server)
    # The states are in the checkpoint of this query, so the query must be the only member of its group.
    .option("kafka.group.id", args.group)
    .option("subscribe", args.topic)
    .option("startingOffsets", "earliest")
    .load()
)
silent = (
    readings.selectExpr("CAST(key AS STRING) AS device", "unix_millis(timestamp) AS at_ms", "timestamp")
    .withWatermark("timestamp", "1 minute")
    .groupBy("device")
    .transformWithState(SilentDevices(), "device STRING, records BIGINT, last_ms BIGINT", "Append", "EventTime")
)
query = (
    silent.writeStream.format("parquet")
    .option("path", args.output)
    .option("checkpointLocation", args.checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
