"""A Spark application with one query in a group, stateful or not: `python -m benchmarks.aggregate_member '{...}'`.

Prints one JSON object when the query is started, and one for every batch that had rows: when it ended, and how much
state it has loaded. Ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.spark_aggregate import AMOUNT
from benchmarks.spark_sources import session

STATELESS: Final = "stateless"
AGGREGATE: Final = "aggregate"
_LOOK_S: Final = 0.05


def run(way: str, options: dict[str, str], state: str, directory: str, trigger_ms: int) -> None:
    # Output of Java must not be mixed with our lines.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spark = session(cores=1)
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    loaded: dict[int, int] = {}

    def report(**what: float) -> None:
        output.write(json.dumps(what) + "\n")
        output.flush()

    report(started_s=time.time())
    trigger = {"processingTime": f"{trigger_ms} milliseconds"}
    if way == AGGREGATE:
        query, stop = _aggregating(spark, options, state, Path(directory), trigger, loaded)
    else:
        rows = spark.readStream.format("holdfast").options(**options).load().selectExpr("key", f"{AMOUNT} AS amount")
        writer = rows.writeStream.format("noop").option("checkpointLocation", f"{directory}/checkpoint")
        query = writer.trigger(**trigger).start()
        stop = query.stop
    seen = -1
    while not over.wait(_LOOK_S):
        if (failure := query.exception()) is not None:
            raise failure
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                report(rows=progress.numInputRows, ended_s=_end_s(progress), loaded_bytes=loaded.get(seen, 0))
    stop()
    spark.stop()


def _aggregating(
    spark: Any, options: dict[str, str], state: str, directory: Path, trigger: dict[str, str], loaded: dict[int, int]
) -> tuple[Any, Any]:
    from holdfast.spark import Aggregate
    from holdfast.spark.pipelines.aggregate.aggregate_query import AggregateBatch

    def on_batch(batch: AggregateBatch) -> None:
        loaded[batch.number] = batch.aggregated.loaded_bytes

    aggregate = Aggregate(
        spark,
        state,
        options,
        amount=AMOUNT,
        cache=directory / "cache",
        checkpoint=directory / "checkpoint",
        on_batch=on_batch,
    )
    aggregate.start(**trigger)
    return aggregate.query, aggregate.stop


def _wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _end_s(progress: Any) -> float:
    said = json.loads(progress.json)
    return datetime.fromisoformat(said["timestamp"]).timestamp() + float(said["durationMs"]["triggerExecution"]) / 1000


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
