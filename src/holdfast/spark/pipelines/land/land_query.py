"""The streaming query that lands topics: `Land(spark, "lake", {...}).start()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land.manifest import DataFile
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.writer import LandResult, TableWriter, Write, WrittenFile
from holdfast.spark.pipelines.pipeline_query import MAX_CONCURRENT_PARTITIONS, PipelineQuery
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession


class LandBatch(NamedTuple):
    number: int
    landed: LandResult
    seconds: float


class Land(PipelineQuery[LandResult]):
    """Lands the topics of `options`, as a member of their group, in the table at `path`."""

    NAME: ClassVar = "land"
    CONTENT_NAME: ClassVar = "table"
    CHECKPOINTS: ClassVar = "_checkpoints"

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        on_batch: Callable[[LandBatch], None] | None = None,
    ) -> None:
        """`options` are those of `format("holdfast")`. Without a `checkpoint`, a query with an instance id has one in
        the table, by that name, and one without an id starts at the offsets of its group. Raises ConfigError."""
        super().__init__(spark, path, options, checkpoint)
        self._on_batch = on_batch
        self._table_writer = TableWriter(
            ManifestStore(self._location.path),
            self._new_writer_id(),
            fail_on_data_loss=self._options.fail_on_data_loss,
            max_concurrent=MAX_CONCURRENT_PARTITIONS,
        )

    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> LandResult:
        return self._table_writer.land(ranges, self._write_function(rows))

    def _report_batch(self, number: int, done: LandResult, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(LandBatch(number, done, seconds))

    def _write_function(self, rows: DataFrame) -> Write:
        from holdfast.spark.pipelines.land.parquet_writer import REPORT

        def write(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
            reports = rows.mapInArrow(_on_executor(str(self._location), dict(floors)), REPORT).collect()
            for report in reports:
                if report.problem is not None:
                    raise Unwritable.because(str(self._location), OSError(report.errno, report.problem))
            return [
                WrittenFile(
                    (one.topic, one.partition),
                    DataFile(one.path, one.date, one.first, one.end, one.rows, one.size_bytes),
                )
                for one in reports
            ]

        return write


def _on_executor(
    table: str, floors: dict[TopicPartition, int]
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.land.parquet_writer import write_rows

        return write_rows(batches, table, floors)

    return write
