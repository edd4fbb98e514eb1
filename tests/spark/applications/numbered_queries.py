"""A Spark application for `test_kills`: queries that process numbered records, each with its own instance id, and write
down what they processed, as `tests.holdfast_client.consumer_process` does. A query that fails is started again, until
SIGTERM. As long as the file `hold` exists, no batch ends, and one with records reports that it is held.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark import await_started


def live(options: dict[str, Any]) -> None:
    stopping = False

    def on_sigterm(*_: object) -> None:
        nonlocal stopping  # a plain flag: the handler may interrupt the holder of a lock
        stopping = True

    signal.signal(signal.SIGTERM, on_sigterm)
    builder = SparkSession.builder.master("local[2]").appName("numbered")
    for name, value in options["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    event_log = Path(options["event_log"]).open("ab", buffering=0)  # noqa: SIM115 - as long as the process lives

    hold = Path(options["hold"])

    def tell(event: str, **fields: Any) -> None:
        line = {"event": event, "at_ms": time.time_ns() // 1_000_000} | fields
        event_log.write(json.dumps(line).encode() + b"\n")

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

    def start(instance_id: str) -> Any:
        source = spark.readStream.format("holdfast").option("maxOffsetsPerTrigger", "5000")
        for name, value in {**options["read"], "kafka.group.instance.id": instance_id}.items():
            source = source.option(name, value)
        sink = source.load().writeStream.foreachBatch(process)
        query = sink.option("checkpointLocation", f"{options['directory']}/{instance_id}").start()
        await_started(query)
        return query

    parent = os.getppid()
    queries = {instance_id: start(instance_id) for instance_id in options["instance_ids"]}
    tell("started")
    while not stopping and os.getppid() == parent:
        time.sleep(0.2)
        for instance_id, query in queries.items():
            if not query.isActive:
                tell("failed", error=str(_why(query))[:500])
                queries[instance_id] = start(instance_id)
    for query in queries.values():
        query.stop()
    tell("closed")
    spark.stop()


def _why(query: Any) -> StreamingQueryException | None:
    failure: StreamingQueryException | None = query.exception()
    return failure


live(json.loads(sys.argv[1]))
