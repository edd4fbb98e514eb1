"""A Spark application whose query keeps totals of every customer: `python -m examples.demo.query '{…}'`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from examples.demo.processes import SOON_READY, Journal, is_to_begin
from holdfast.spark import Enrich

if TYPE_CHECKING:
    from holdfast.spark.pipelines.enrich.query import Batch

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": SOON_READY,
}
_KEEP_S: Final = 3600.0
"""Versions of the state, so that the demo can count afterwards what each of them has taken in."""


def main(options: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the workers are whatever `python3` is
    builder = SparkSession.builder.master("local[1]").appName(options["name"])
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    journal = Journal(Path(options["journal"]))
    if not is_to_begin(journal):
        return

    def on_batch(batch: Batch) -> None:
        if batch.enriched.records:
            journal.tell("processed", loaded_bytes=batch.enriched.loaded_bytes)

    source = {
        "kafka.bootstrap.servers": options["bootstrap"],
        "kafka.group.id": options["group"],
        "kafka.client.id": options["name"],
        "kafka.session.timeout.ms": options["session_ms"],
        "kafka.max.poll.interval.ms": max(options["session_ms"], 300_000),
        "kafka.heartbeat.interval.ms": 1000,
        "subscribe": options["topic"],
        # The plain consumer in the group counts nothing. What it has read is in no total, and that is no loss here.
        "failOnDataLoss": "false",
    }
    if options["static"]:
        source["kafka.group.instance.id"] = options["name"]
    query = Enrich(
        spark,
        options["state"],
        source,
        key="CAST(key AS STRING)",
        amount="CAST(get_json_object(CAST(value AS STRING), '$.amount') AS BIGINT)",
        cache=Path(options["journal"]).with_suffix(".cache") if options["static"] else None,
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
