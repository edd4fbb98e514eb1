"""A Spark application that runs measurements on request: `python -m benchmarks.spark_session '{...}'`.

It reads one JSON object per line from stdin, and writes one to stdout for each. The first line reports that Spark is
ready.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from benchmarks.measure import HOLDFAST, per_million
from benchmarks.proc import cpu_seconds, resident_mib
from benchmarks.process_tree import of_kind, usage
from benchmarks.spark_aggregate import aggregate
from benchmarks.spark_forensics import forensics
from benchmarks.spark_land import land
from benchmarks.spark_sources import kind_of_process, session, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S: Final = 600
_LOOK_S: Final = 0.1
_JVM_THREADS: Final = {"Executor task": "tasks", "C1 ": "jit", "C2 ": "jit", "GC ": "gc", "G1 ": "gc", "VM ": "gc"}


def throughput(
    spark: SparkSession, source: str, bootstrap: str, topic: str, records: int, server_pid: int
) -> dict[str, float]:
    """Reads the whole topic once, in one batch (AvailableNow); from the start of the query to its end."""
    rows = stream(spark, source, bootstrap, topic, {"startingOffsets": "earliest"})
    before, server_before = usage(os.getpid(), kind_of_process), cpu_seconds(server_pid)
    began = time.perf_counter()
    progress = _available_now(rows)
    seconds = time.perf_counter() - began
    used, server_cpu = usage(os.getpid(), kind_of_process).since(before), cpu_seconds(server_pid) - server_before
    read = sum(one["numInputRows"] for one in progress)
    if read != records:
        raise RuntimeError(f"{source} read {read} of {records} records")
    batches_s = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    phases = {f"phase_{name}_s": value / 1000 for name, value in progress[0]["durationMs"].items()}
    jvm = used.threads("jvm", _jvm_thread)
    workers = used.threads("workers", _worker_thread)
    cpu = {
        "cpu_per_million": used.total,
        "server_cpu_per_million": server_cpu,
        "jvm_cpu_per_million": used.by_kind["jvm"],
        "workers_cpu_per_million": used.by_kind["workers"],
        "jvm_tasks_cpu_per_million": jvm.get("tasks", 0.0),
        "jvm_jit_cpu_per_million": jvm.get("jit", 0.0),
        "jvm_gc_cpu_per_million": jvm.get("gc", 0.0),
        "worker_client_cpu_per_million": workers.get("librdkafka", 0.0),
        "worker_python_cpu_per_million": workers.get("python", 0.0),
    }
    return {
        "records": records,
        "seconds": seconds,
        "rows_per_s": records / seconds,
        "batch_rows_per_s": records / batches_s,
        "cores": used.total / seconds,
        **phases,
        **{name: per_million(value, records) for name, value in cpu.items()},
    }


def latency(
    spark: SparkSession,
    source: str,
    bootstrap: str,
    topic: str,
    partitions: int,
    batches: int,
    warm_up: int,
    pause_s: float,
    options: dict[str, str],
) -> dict[str, float]:
    """One record for each of the first `partitions`, and again some time after the batch that had them."""
    rows = stream(spark, source, bootstrap, topic, {"startingOffsets": "latest", **options})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0})
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            _until_it_waits(query)
            sent = []
            for _ in range(warm_up + batches):
                time.sleep(pause_s)
                sent.append(time.time())
                for partition in range(partitions):
                    producer.produce(topic, b"tick", partition=partition)
                producer.flush(PATIENCE_S)
                _until_read(query, partitions * len(sent))
        finally:
            query.stop()
        progress = [dict(one) for one in map(_read, query.recentProgress) if one["numInputRows"]]
    if sum(one["numInputRows"] for one in progress) != partitions * len(sent):
        raise RuntimeError(f"{source} did not read what was sent")
    return _latencies(progress, sent, partitions, warm_up)


def memory(spark: SparkSession, bootstrap: str, topic: str, per_batch: int) -> dict[str, Any]:
    """The resident MiB of the reader, and of its largest worker, at the end of every batch."""
    rows = stream(
        spark, HOLDFAST, bootstrap, topic, {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_batch)}
    )
    samples: list[tuple[float, float, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            reader = [resident_mib(pid) for pid in of_kind(os.getpid(), kind_of_process, "reader")]
            workers = [resident_mib(pid) for pid in of_kind(os.getpid(), kind_of_process, "workers")]
            if reader and workers:
                samples.append((time.time(), max(reader), max(workers)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        progress = _available_now(rows)
    finally:
        over.set()
        watcher.join()
    ends = [_end_s(one) for one in progress if one["numInputRows"]]
    at_ends = [max((one for one in samples if one[0] <= end), default=samples[0]) for end in ends]
    return {"reader_mib": [one[1] for one in at_ends], "worker_mib": [one[2] for one in at_ends]}


def _available_now(rows: DataFrame) -> list[Mapping[str, Any]]:
    """The progress of every batch."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        query = (
            rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        try:
            if not query.awaitTermination(PATIENCE_S):
                raise RuntimeError(f"the query took longer than {PATIENCE_S} s")
        finally:
            query.stop()
        return [one for one in map(_read, query.recentProgress) if one["numInputRows"]]


def _read(progress: Any) -> Mapping[str, Any]:
    reported: Mapping[str, Any] = json.loads(progress.json)
    return reported


def _until_it_waits(query: StreamingQuery) -> None:
    """The query has requested its first offsets, and found nothing to read."""
    deadline = time.monotonic() + PATIENCE_S
    while query.status["message"] != "Waiting for data to arrive":
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query did not begin: {query.status}")
        time.sleep(_LOOK_S)


def _until_read(query: StreamingQuery, records: int) -> None:
    """The batches that Spark has reported had this many rows."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(_read(one)["numInputRows"] for one in query.recentProgress) < records:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query did not read what was sent: {query.status}")
        time.sleep(_LOOK_S)


def _latencies(progress: list[dict[str, Any]], sent: list[float], partitions: int, warm_up: int) -> dict[str, float]:
    """The durations of the batches after the first ones, and the times from sending a record to the end of its
    batch."""
    arrived: list[float] = []
    for one in progress:
        arrived += [_end_s(one)] * one["numInputRows"]
    trips = [(arrived[number * partitions + partitions - 1] - at) * 1000 for number, at in enumerate(sent)]
    durations = [one["durationMs"] for one in progress[warm_up:]]
    phases = {
        f"{name}_ms": statistics.median([one.get(name, 0) for one in durations])
        for name in ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets", "commitBatch")
    }
    batches = [one["triggerExecution"] for one in durations]
    return {
        "batches": len(batches),
        "batch_p50_ms": statistics.median(batches),
        "batch_p90_ms": statistics.quantiles(batches, n=10)[8],
        "trip_p50_ms": statistics.median(trips[warm_up:]),
        **phases,
    }


def _end_s(progress: Mapping[str, Any]) -> float:
    began = datetime.fromisoformat(progress["timestamp"])
    return float(began.timestamp() + progress["durationMs"]["triggerExecution"] / 1000)


def _jvm_thread(name: str) -> str:
    return next((kind for begins, kind in _JVM_THREADS.items() if name.startswith(begins)), "rest")


def _worker_thread(name: str) -> str:
    return "librdkafka" if name.startswith("rdk:") else "python"


_NAMED: Final = {"spark-sql-kafka-*.jar": "its own Kafka source", "delta-spark_*.jar": "delta-spark"}


def _versions(jars: Sequence[Path]) -> dict[str, str]:
    found = [(name, jar) for pattern, name in _NAMED.items() for path in jars for jar in path.glob(pattern)]
    return {name: jar.stem.rpartition("-")[2] for name, jar in found}


COMMANDS: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "throughput": throughput,
    "latency": latency,
    "memory": memory,
    "land": land,
    "aggregate": aggregate,
    "forensics": forensics,
}


def main(options: dict[str, Any]) -> None:
    # Output of Java must not be mixed with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jars = [Path(path) for path in options["jars"]]
    spark = session(options["cores"], jars)

    def answer(figures: dict[str, Any]) -> None:
        answers.write(json.dumps(figures) + "\n")
        answers.flush()

    answer({"Spark": spark.version, **_versions(jars)})
    for line in sys.stdin:
        asked = json.loads(line)
        answer(COMMANDS[asked.pop("command")](spark, **asked))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
