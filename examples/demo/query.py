"""A Spark application that aggregates by customer: `python -m examples.demo.query '{…}'`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from examples.demo.processes import FAST_START_OPTIONS, EventLog, print_stacks_on_sigquit, wait_for_start
from examples.demo.stop_signal import StopSignal
from holdfast.spark import Aggregate

if TYPE_CHECKING:
    from holdfast.spark.pipelines.aggregate.aggregate_query import AggregateBatch

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": FAST_START_OPTIONS,
}
_KEEP_S: Final = 3600.0
"""Keeps all versions of the state, so that the demo can count their records afterwards."""


def main(options: dict[str, Any]) -> None:
    print_stacks_on_sigquit()
    stopping = StopSignal()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise the workers use `python3` from PATH
    builder = SparkSession.builder.master("local[1]").appName(options["name"])
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    event_log = EventLog(Path(options["event_log"]))
    if not wait_for_start(event_log):
        return

    def on_batch(batch: AggregateBatch) -> None:
        if batch.aggregated.records:
            event_log.write("processed", loaded_bytes=batch.aggregated.loaded_bytes)

    source = {
        "kafka.bootstrap.servers": options["bootstrap"],
        "kafka.group.id": options["group"],
        "kafka.client.id": options["name"],
        "kafka.session.timeout.ms": options["session_ms"],
        "kafka.max.poll.interval.ms": max(options["session_ms"], 300_000),
        "kafka.heartbeat.interval.ms": 1000,
        "subscribe": options["topic"],
        # The plain consumer in the group aggregates nothing. Records that it has read are in no total, which is
        # intended.
        "failOnDataLoss": "false",
    }
    if options["static"]:
        source["kafka.group.instance.id"] = options["name"]
    query = Aggregate(
        spark,
        options["state"],
        source,
        key="CAST(key AS STRING)",
        amount="CAST(get_json_object(CAST(value AS STRING), '$.amount') AS BIGINT)",
        cache=Path(options["event_log"]).with_suffix(".cache") if options["static"] else None,
        grace_s=_KEEP_S,
        on_batch=on_batch,
    )
    query.start(processingTime="1 second")
    while not stopping.is_set():
        if query.wait(1):
            return
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
