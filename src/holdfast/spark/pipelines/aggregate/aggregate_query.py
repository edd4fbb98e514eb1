"""The streaming query that keeps totals: `Aggregate(spark, "totals", {...}, amount="...").start()`."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.aggregate.aggregate_settings import (
    BINARY,
    AggregateSettings,
    amount_type,
    keep_us,
    text_type,
    window_us,
)
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.writer import GRACE_S, Advance, AggregateResult, AggregateWriter
from holdfast.spark.pipelines.location import user_cache
from holdfast.spark.pipelines.pipeline_query import MAX_CONCURRENT_PARTITIONS, PipelineQuery, io_errors
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.pipelines.aggregate.task import Advanced, Work
    from holdfast.spark.pipelines.aggregate.version import Version


class AggregateBatch(NamedTuple):
    number: int
    aggregated: AggregateResult
    seconds: float


class Aggregate(PipelineQuery[AggregateResult]):
    """Aggregates the topics of `options`, as a member of their group, in the state at `path`."""

    NAME: ClassVar = "aggregate"
    CONTENT_NAME: ClassVar = "state"
    CHECKPOINTS: ClassVar = "checkpoints"

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        *,
        key: str = "key",
        amount: str | None = None,
        last: str | None = "value",
        window: str | timedelta | None = None,
        keep_windows: str | timedelta | None = None,
        cache: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        on_batch: Callable[[AggregateBatch], None] | None = None,
    ) -> None:
        """`key`, `amount` and `last` are expressions over the columns of the source. Windows that ended `keep_windows`
        before the newest record of their partition are dropped; by default none are. `cache` is a local directory, by
        default below the user's cache for a query with an instance id, and temporary for one without. `storage_options`
        are for a state in S3. Raises ConfigError."""
        self._window_us, self._keep_us = window_us(window), keep_us(keep_windows, window)
        super().__init__(spark, path, options, checkpoint, storage_options)
        self._key, self._amount, self._last = key.strip(), amount and amount.strip(), last and last.strip()
        self._on_batch = on_batch
        self._cache, self._is_cache_temporary = self._choose_cache(cache)
        self._store = StateStore(self._location)
        self._aggregate_writer = AggregateWriter(
            self._store,
            self._new_writer_id(),
            fail_on_data_loss=self._options.fail_on_data_loss,
            grace_s=grace_s,
            max_concurrent=MAX_CONCURRENT_PARTITIONS,
        )
        self._settings: AggregateSettings | None = None
        self._began_s = time.time()
        self.loaded_bytes = 0
        """Bytes of state, in all batches so far."""

    def _check(self) -> None:
        if self._options.min_partitions is not None:
            raise ConfigError(
                "aggregate does not support the option minPartitions: one task counts the records of a partition"
            )

    def _prepare(self, rows: DataFrame) -> DataFrame:
        settings = self._settings_for(rows)
        with io_errors(self._location):
            self._store.create_or_check_settings(settings)
        self._settings = settings
        return rows.selectExpr(*columns(settings)).selectExpr("*", f"xxhash64({', '.join(settings.identity)}) AS hash")

    def _settings_for(self, rows: DataFrame) -> AggregateSettings:
        def type_of(what: str, expression: str) -> str:
            from pyspark.errors import AnalysisException, ParseException

            try:
                return rows.selectExpr(f"({expression}) AS it").schema["it"].dataType.simpleString()
            except (AnalysisException, ParseException) as error:
                message = " ".join(str(error).partition(";")[0].partition("SQLSTATE")[0].split())
                raise ConfigError(
                    f"{what} {expression!r} cannot be computed from the columns of the source: {message}"
                ) from error

        return AggregateSettings(
            key=self._key,
            key_type=text_type("key", self._key, type_of("key", self._key)),
            amount=self._amount,
            amount_type=self._amount and amount_type(self._amount, type_of("amount", self._amount)),
            last=self._last,
            last_type=self._last and text_type("last", self._last, type_of("last", self._last)),
            window_us=self._window_us,
        )

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> AggregateResult:
        done = self._aggregate_writer.apply(ranges, self._advance_function(rows))
        self.loaded_bytes += done.loaded_bytes
        return done

    def _report_batch(self, number: int, done: AggregateResult, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(AggregateBatch(number, done, seconds))

    def _advance_function(self, rows: DataFrame) -> Advance:
        from holdfast.spark.pipelines.aggregate.task import REPORT, Work, read_report

        assert self._settings is not None, "it has been started"
        settings = self._settings

        def advance(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
            places = self._location, str(self._cache), self._began_s
            work = Work(*places, settings, dict(versions), MAX_CONCURRENT_PARTITIONS, self._keep_us)
            reports = rows.mapInArrow(_on_executor(work), REPORT).collect()
            return [read_report(one.report) for one in reports]

        return advance

    # -- directories ---------------------------------------------------------------------------------------------------

    def _choose_cache(self, given: str | os.PathLike[str] | None) -> tuple[Path, bool]:
        if self._instance_id is None:
            where = None if given is None else _create_directory(Path(given))
            return Path(tempfile.mkdtemp(prefix="holdfast-aggregate-cache-", dir=where)), True
        if given is not None:
            return Path(given).absolute() / self._instance_id, False
        home = user_cache() / self.NAME / self._location.digest / self._instance_id
        return (home if self._location.is_local else home / "runs").absolute(), False  # next to the checkpoint

    def _delete_temporary(self) -> None:
        super()._delete_temporary()
        if self._is_cache_temporary:
            shutil.rmtree(self._cache, ignore_errors=True)


def columns(settings: AggregateSettings) -> list[str]:
    """The columns that the tasks need, as expressions over the source's columns."""
    selected = ["topic", "partition", "offset", "unix_micros(timestamp) AS time"]
    selected.append(f"{_bytes(settings.key, settings.key_type)} AS key")
    if settings.window_us is not None:
        selected.append(f"unix_micros(timestamp) - pmod(unix_micros(timestamp), {settings.window_us}) AS window")
    if settings.amount is not None:
        selected.append(f"CAST(({settings.amount}) AS {settings.amount_type}) AS amount")
    if settings.last is not None and settings.last_type is not None:
        selected.append(f"{_bytes(settings.last, settings.last_type)} AS last")
    return selected


def _bytes(expression: str, kind: str) -> str:
    return f"({expression})" if kind == BINARY else f"CAST(CAST(({expression}) AS STRING) AS BINARY)"


def _create_directory(directory: Path) -> Path:
    with io_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory.absolute()


def _on_executor(work: Work) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def aggregate(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.aggregate.task import aggregate_rows

        return aggregate_rows(batches, work)

    return aggregate
