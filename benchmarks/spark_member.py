"""A Spark application with one query in a group, until its stdin ends: `python -m benchmarks.spark_member '{...}'`.

Prints one JSON object for every batch that had rows: when it ended, and how long it and its first part took.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import datetime
from typing import Any, Final

from benchmarks.measure import HOLDFAST
from benchmarks.spark_sources import session, stream

_LOOK_S: Final = 0.1
_STARTS: Final = 5
_TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark gives a reader's process ten seconds to start, which cannot be configured; on a busy machine that is short."""


def run(
    bootstrap: str, topic: str, group: str, instance: str | None, checkpoint: str, trigger_ms: int, session_ms: int
) -> None:
    # Output of Java must not be mixed with our lines.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spark = session(cores=1)
    # Without an instance id the member is dynamic.
    member = {
        "kafka.group.id": group,
        "kafka.group.instance.id": instance,
        "kafka.session.timeout.ms": str(session_ms),
        "startingOffsets": "latest",
    }
    rows = stream(spark, HOLDFAST, bootstrap, topic, member)
    writing = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    start = writing.trigger(processingTime=f"{trigger_ms} milliseconds").start
    query, starts = start(), 1
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    seen = -1
    while not over.wait(_LOOK_S):
        if (failure := query.exception()) is not None:
            if _TOO_SLOW not in str(failure) or starts == _STARTS:
                raise failure
            query, starts = start(), starts + 1
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                output.write(json.dumps(_batch(json.loads(progress.json))) + "\n")
                output.flush()
    query.stop()
    spark.stop()


def _wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _batch(progress: dict[str, Any]) -> dict[str, float]:
    spent = progress["durationMs"]
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return {
        "ended_s": began + spent["triggerExecution"] / 1000,
        "batch_s": spent["triggerExecution"] / 1000,
        "latest_offset_s": spent.get("latestOffset", 0) / 1000,
    }


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
