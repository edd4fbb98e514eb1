"""A Spark application for `test_kills`: queries that process numbered records, each with a seat of its own, and write
down what they processed, as `tests.client.consumer_process` does. A query that fails is started again, until SIGTERM.
As long as the file `hold` is there, no batch comes to its end, and one with records tells that it is held.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark import await_begin


def live(options: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    builder = SparkSession.builder.master("local[2]").appName("numbered")
    for name, value in options["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    journal = Path(options["journal"]).open("ab", buffering=0)  # noqa: SIM115 - as long as the process lives

    hold = Path(options["hold"])

    def tell(event: str, **fields: Any) -> None:
        line = {"event": event, "at_ms": time.time_ns() // 1_000_000} | fields
        journal.write(json.dumps(line).encode() + b"\n")

    def process(batch: DataFrame, _number: int) -> None:
        records: dict[int, list[tuple[int, int]]] = {}
        for row in sorted(batch.select("partition", "offset", "value").collect()):
            records.setdefault(row.partition, []).append((row.offset, int(bytes(row.value))))
        if records:
            tell("processed", records=records)
            if hold.exists():
                tell("held")
        while hold.exists():
            time.sleep(0.01)

    def start(seat: str) -> Any:
        source = spark.readStream.format("holdfast").option("maxOffsetsPerTrigger", "5000")
        for name, value in {**options["read"], "kafka.group.instance.id": seat}.items():
            source = source.option(name, value)
        sink = source.load().writeStream.foreachBatch(process)
        query = sink.option("checkpointLocation", f"{options['directory']}/{seat}").start()
        await_begin(query)
        return query

    parent = os.getppid()
    queries = {seat: start(seat) for seat in options["seats"]}
    tell("started")
    while not stopping.wait(0.2) and os.getppid() == parent:
        for seat, query in queries.items():
            if not query.isActive:
                tell("failed", error=str(_why(query))[:500])
                queries[seat] = start(seat)
    for query in queries.values():
        query.stop()
    tell("closed")
    spark.stop()


def _why(query: Any) -> StreamingQueryException | None:
    failure: StreamingQueryException | None = query.exception()
    return failure


live(json.loads(sys.argv[1]))
