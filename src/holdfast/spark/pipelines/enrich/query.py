"""The streaming query that keeps totals: `Enrich(spark, "totals", {...}, amount="...").start()`."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.client.errors import ConfigError
from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.pipelines.enrich.enricher import GRACE_S, Advance, Enriched, Enricher
from holdfast.spark.pipelines.enrich.settings import BINARY, Settings, amount_type, keep_us, text_type, window_us
from holdfast.spark.pipelines.enrich.store import StateStore
from holdfast.spark.pipelines.query import AT_ONCE, PipelineQuery, telling

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.pipelines.enrich.task import Advanced, Work
    from holdfast.spark.pipelines.enrich.version import Version


class Batch(NamedTuple):
    number: int
    enriched: Enriched
    seconds: float


class Enrich(PipelineQuery[Enriched]):
    """Keeps totals of what `options` subscribe to, as a member of their group, in the state at `path`."""

    NAME: ClassVar = "enrich"
    KEPT: ClassVar = "state"
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
        grace_s: float = GRACE_S,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> None:
        """`key`, `amount` and `last` are expressions over the columns of the source. Windows that ended `keep_windows`
        before the newest record of their partition are dropped; by default none are. `cache` is a directory of the
        machine's own, by default below the user's cache for a query with an instance id, and one that goes with the
        query for one without. Raises ConfigError."""
        self._window_us, self._keep_us = window_us(window), keep_us(keep_windows, window)
        super().__init__(spark, path, options, checkpoint)
        self._key, self._amount, self._last = key.strip(), amount and amount.strip(), last and last.strip()
        self._on_batch = on_batch
        self._cache, self._is_cache_temporary = self._choose_cache(cache)
        self._store = StateStore(self._path)
        self._enricher = Enricher(
            self._store,
            self._writer(),
            fail_on_data_loss=self._options.fail_on_data_loss,
            grace_s=grace_s,
            at_once=AT_ONCE,
        )
        self._settings: Settings | None = None
        self._began_s = time.time()
        self.loaded_bytes = 0
        """Of state, in all batches so far."""

    def _check(self) -> None:
        if self._options.min_partitions is not None:
            raise ConfigError(
                "enrich does not take the option minPartitions: the records of a partition are counted by one task"
            )

    def _prepare(self, rows: DataFrame) -> DataFrame:
        settings = self._settings_for(rows)
        with telling(self._path):
            self._store.agree(settings)
        self._settings = settings
        return rows.selectExpr(*columns(settings)).selectExpr("*", f"xxhash64({', '.join(settings.identity)}) AS hash")

    def _settings_for(self, rows: DataFrame) -> Settings:
        def type_of(what: str, expression: str) -> str:
            from pyspark.errors import AnalysisException, ParseException

            try:
                return rows.selectExpr(f"({expression}) AS it").schema["it"].dataType.simpleString()
            except (AnalysisException, ParseException) as error:
                said = " ".join(str(error).partition(";")[0].partition("SQLSTATE")[0].split())
                raise ConfigError(f"{what} {expression!r} is nothing that the source has: {said}") from error

        return Settings(
            key=self._key,
            key_type=text_type("key", self._key, type_of("key", self._key)),
            amount=self._amount,
            amount_type=self._amount and amount_type(self._amount, type_of("amount", self._amount)),
            last=self._last,
            last_type=self._last and text_type("last", self._last, type_of("last", self._last)),
            window_us=self._window_us,
        )

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> Enriched:
        done = self._enricher.enrich(ranges, self._advancing(rows))
        self.loaded_bytes += done.loaded_bytes
        return done

    def _tell(self, number: int, done: Enriched, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(Batch(number, done, seconds))

    def _advancing(self, rows: DataFrame) -> Advance:
        from holdfast.spark.pipelines.enrich.task import REPORT, Work, read_report

        assert self._settings is not None, "it has been started"
        settings = self._settings

        def advance(versions: Mapping[Where, Version]) -> list[Advanced]:
            places = str(self._path), str(self._cache), self._began_s
            work = Work(*places, settings, dict(versions), AT_ONCE, self._keep_us)
            reports = rows.mapInArrow(_on_executor(work), REPORT).collect()
            return [read_report(one.report) for one in reports]

        return advance

    # -- its places ----------------------------------------------------------------------------------------------------

    def _choose_cache(self, given: str | os.PathLike[str] | None) -> tuple[Path, bool]:
        if self._instance_id is None:
            where = None if given is None else _made(Path(given))
            return Path(tempfile.mkdtemp(prefix="holdfast-enrich-cache-", dir=where)), True
        state = hashlib.sha256(str(self._path).encode()).hexdigest()[:16]
        home = Path(given) if given is not None else user_cache() / "enrich" / state
        return home.absolute() / self._instance_id, False

    def _forget(self) -> None:
        super()._forget()
        if self._is_cache_temporary:
            shutil.rmtree(self._cache, ignore_errors=True)


def columns(settings: Settings) -> list[str]:
    """What of a record the tasks need, as expressions over the source's columns."""
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


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def _made(directory: Path) -> Path:
    with telling(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory.absolute()


def _on_executor(work: Work) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def enrich(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.enrich.task import enrich_rows

        return enrich_rows(batches, work)

    return enrich
