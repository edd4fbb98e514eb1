"""Totals of keys in a Spark application: with `aggregate`, and with Spark's own state store."""

from __future__ import annotations

import json
import statistics
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import HOLDFAST
from benchmarks.spark_sources import stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AGGREGATE: Final = HOLDFAST
ROCKSDB: Final = "rocksdb"
WAYS: Final = (AGGREGATE, ROCKSDB)
PATIENCE_S: Final = 900
AMOUNT: Final = "CAST(CAST(value AS STRING) AS BIGINT)"
_ROCKSDB: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""With its fast setting: every batch uploads only the changes."""


def aggregate(
    spark: SparkSession,
    way: str,
    bootstrap: str,
    topic: str,
    keys: int,
    records: int,
    per_batch: int,
    cores: int,
    last: bool,
) -> dict[str, float]:
    """The whole topic, in batches. Only the batches in which the state has all keys count."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_batch)}
    with tempfile.TemporaryDirectory(prefix="aggregate-") as directory:
        if way == AGGREGATE:
            progress, facts = _aggregate(spark, bootstrap, topic, options, Path(directory), last, keys)
        else:
            rows = stream(spark, HOLDFAST, bootstrap, topic, options)
            progress, facts = _own(spark, rows, Path(directory), cores, last), {}
    read = sum(one["numInputRows"] for one in progress)
    if read != records:
        raise RuntimeError(f"{way} read {read} of {records} records")
    # Batches are divided by offsets, not by keys. These are the batches after the first pass over all keys.
    full = [one for at, one in enumerate(progress) if sum(p["numInputRows"] for p in progress[:at]) >= keys]
    seconds = [one["durationMs"]["triggerExecution"] / 1000 for one in full]
    rows_full = sum(one["numInputRows"] for one in full)
    every = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    return {
        "batches": len(full),
        "rows_per_s": rows_full / sum(seconds),
        "batch_s": statistics.median(seconds),
        "longest_batch_s": max(seconds),
        "all_rows_per_s": records / every,
        **facts,
    }


def _aggregate(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    options: dict[str, str],
    directory: Path,
    last: bool,
    keys: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    from holdfast.spark import Aggregate, read_totals
    from holdfast.spark.pipelines.aggregate.aggregate_query import AggregateBatch

    batches: list[AggregateBatch] = []
    own = {"kafka.group.id": f"bench-{uuid.uuid4().hex}", "kafka.group.instance.id": "bench-1"}
    query = Aggregate(
        spark,
        directory / "state",
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **own, **options},
        amount=AMOUNT,
        last="value" if last else None,
        cache=directory / "cache",
        checkpoint=directory / "checkpoint",
        on_batch=batches.append,
    )
    query.start(availableNow=True)
    if not query.wait(PATIENCE_S):
        query.stop()
        raise RuntimeError(f"the query took longer than {PATIENCE_S} s")
    assert query.query is not None
    progress = _progress(query.query)
    found = read_totals(spark, directory / "state").count()
    if found != keys:
        raise RuntimeError(f"aggregate has {found} of {keys} keys")
    if query.loaded_bytes:
        raise RuntimeError("aggregate has loaded what it has written itself")
    written = sum(batch.aggregated.written_bytes for batch in batches)
    return progress, {"written_mib": written / 2**20, "state_mib": batches[-1].aggregated.state_bytes / 2**20}


def _own(spark: SparkSession, rows: DataFrame, directory: Path, cores: int, last: bool) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    settings = {**_ROCKSDB, "spark.sql.shuffle.partitions": str(cores)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        wanted = [f.count("*").alias("count"), f.sum("amount").alias("sum")]
        if last:
            wanted.append(f.max_by("value", "offset").alias("last"))
        totals = rows.selectExpr("key", "value", "offset", f"{AMOUNT} AS amount").groupBy("key").agg(*wanted)
        writer = totals.writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(PATIENCE_S):
                raise RuntimeError(f"the query took longer than {PATIENCE_S} s")
        finally:
            query.stop()
        return _progress(query)
    finally:
        for name in settings:
            spark.conf.unset(name)


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Of every batch that had rows."""
    return [one for one in (json.loads(progress.json) for progress in query.recentProgress) if one["numInputRows"]]
