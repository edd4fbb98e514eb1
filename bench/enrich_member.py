"""A Spark application with one query in a group, with state or without: `python -m bench.enrich_member '{...}'`.

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

from bench.spark_enrich import AMOUNT
from bench.spark_sources import session

STATELESS: Final = "stateless"
ENRICH: Final = "enrich"
_LOOK_S: Final = 0.05


def run(way: str, options: dict[str, str], state: str, directory: str, trigger_ms: int) -> None:
    # What Java prints must not get between our lines.
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spark = session(cores=1)
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    loaded: dict[int, int] = {}

    def tell(**what: float) -> None:
        told.write(json.dumps(what) + "\n")
        told.flush()

    tell(started_s=time.time())
    trigger = {"processingTime": f"{trigger_ms} milliseconds"}
    if way == ENRICH:
        query, stop = _enriching(spark, options, state, Path(directory), trigger, loaded)
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
                tell(rows=progress.numInputRows, ended_s=_end_s(progress), loaded_bytes=loaded.get(seen, 0))
    stop()
    spark.stop()


def _enriching(
    spark: Any, options: dict[str, str], state: str, directory: Path, trigger: dict[str, str], loaded: dict[int, int]
) -> tuple[Any, Any]:
    from holdfast.spark import Enrich
    from holdfast.spark.pipelines.enrich.query import Batch

    def on_batch(batch: Batch) -> None:
        loaded[batch.number] = batch.enriched.loaded_bytes

    enrich = Enrich(
        spark,
        state,
        options,
        amount=AMOUNT,
        cache=directory / "cache",
        checkpoint=directory / "checkpoint",
        on_batch=on_batch,
    )
    enrich.start(**trigger)
    return enrich.query, enrich.stop


def _wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _end_s(progress: Any) -> float:
    said = json.loads(progress.json)
    return datetime.fromisoformat(said["timestamp"]).timestamp() + float(said["durationMs"]["triggerExecution"]) / 1000


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
