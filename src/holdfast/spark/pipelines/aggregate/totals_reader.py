"""The totals of a state: as a DataFrame, and without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.aggregate.aggregate_settings import BIGINT, BINARY, STRING, AggregateSettings
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.version import Version, run_file
from holdfast.spark.pipelines.location import Location

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 10_000
"""Rows per batch for Spark."""


def read_totals(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """One row for each topic, partition, key and window. The current state: read it within the grace period.

    A key whose records are in several partitions has a row for each.
    """
    store = StateStore(Location.parse(path, "state", storage_options))
    settings, versions = versions_of(store, topics)
    if not versions:
        return spark.createDataFrame([], schema(settings))
    tasks = [(at, json.dumps(asdict(version))) for at, version in enumerate(versions)]
    rows = spark.createDataFrame(tasks, "at INT, version STRING").repartition(min(len(tasks), 200), "at")
    return rows.mapInArrow(_on_executor(store.state, settings), schema(settings))


def versions_of(store: StateStore, topics: Sequence[str] | None = None) -> tuple[AggregateSettings, list[Version]]:
    """The current versions. Raises ConfigError if there is no state."""
    settings = store.settings()
    if settings is None:
        raise ConfigError(f"{store.state}: there is no such state")
    known = store.topics()
    for topic in topics or ():
        if topic not in known:
            raise ConfigError(f"{store.state} has no topic {topic!r}; it has {', '.join(known) or 'none'}")
    every = [where for topic in topics or known for where in store.partitions(topic)]
    found = [version for where in every if (version := store.newest(where)) is not None]
    return settings, found


def schema(settings: AggregateSettings) -> str:
    named = ["topic STRING", "partition INT", f"key {settings.key_type}"]
    if settings.window_us is not None:
        named.append("window TIMESTAMP")
    named.append("count BIGINT")
    if settings.amount is not None:
        named.append(f"sum {settings.amount_type or BIGINT}")
    if settings.last is not None:
        named.append(f"last {settings.last_type or BINARY}")
    return ", ".join([*named, "last_timestamp TIMESTAMP", "last_offset BIGINT"])


def totals_of(store: StateStore, settings: AggregateSettings, version: Version) -> pyarrow.Table:
    """All totals of a partition, with the columns of `schema`."""
    import pyarrow as pa

    from holdfast.spark.pipelines.aggregate.expiry import without_dropped
    from holdfast.spark.pipelines.aggregate.totals import merged

    tables = [store.run(version.where, run.name).load(run, settings).table for run in version.runs]
    rows = merged(tables, settings) if tables else settings.schema.empty_table()
    rows = without_dropped(rows, version.dropped_before_us)
    moments = pa.timestamp("us", "UTC")
    columns: dict[str, Any] = {
        "topic": pa.repeat(pa.scalar(version.topic), rows.num_rows),
        "partition": pa.repeat(pa.scalar(version.partition, pa.int32()), rows.num_rows),
        "key": _text(rows["key"], settings.key_type),
    }
    if settings.window_us is not None:
        columns["window"] = rows["window"].cast(moments)
    columns["count"] = rows["count"]
    if settings.amount is not None:
        columns["sum"] = rows["sum"]
    if settings.last is not None:
        columns["last"] = _text(rows["last"], settings.last_type)
    return pa.table({**columns, "last_timestamp": rows["time"].cast(moments), "last_offset": rows["offset"]})


def _text(values: pyarrow.ChunkedArray, kind: str | None) -> pyarrow.ChunkedArray:
    import pyarrow as pa

    if kind != STRING:
        return values
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:  # Spark accepts any bytes as a STRING, and one such key must not fail the others
        chunks = (map(_readable, chunk.to_pylist()) for chunk in values.chunks)
        return pa.chunked_array([pa.array(chunk, pa.large_string()) for chunk in chunks], pa.large_string())


def _readable(value: bytes | None) -> str | None:
    """Bytes that are not UTF-8 are escaped, so that different keys stay different."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _on_executor(
    state: Location, settings: AggregateSettings
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        store = StateStore(state)
        for batch in batches:
            for line in batch.column("version").to_pylist():
                fields = json.loads(line)
                fields["runs"] = tuple(run_file(one) for one in fields["runs"])
                for rows in totals_of(store, settings, Version(**fields)).to_batches(max_chunksize=ROWS):
                    yield _for_spark(rows)

    return read


def _for_spark(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """With 32-bit offsets, as Spark requires."""
    import pyarrow as pa

    short = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}
    return rows.cast(pa.schema([field.with_type(short.get(field.type, field.type)) for field in rows.schema]))
