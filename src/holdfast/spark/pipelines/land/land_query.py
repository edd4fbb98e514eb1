"""The streaming query that lands topics: `Land(spark, "lake", {...}).start()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.land.writer import LandResult, TableWriter
from holdfast.spark.pipelines.pipeline_query import PipelineQuery
from holdfast.spark.planning import split_into_tasks

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.options import ReadOptions
    from holdfast.spark.pipelines.location import Location


class LandBatch(NamedTuple):
    number: int
    landed: LandResult
    seconds: float


class Land(PipelineQuery[LandResult]):
    """Lands the topics of `options`, as a member of their group, in the Delta table at `path`."""

    NAME: ClassVar = "land"
    CONTENT_NAME: ClassVar = "table"
    CHECKPOINTS: ClassVar = "_checkpoints"
    DEFAULTS: ClassVar = {**PipelineQuery.DEFAULTS, "includeHeaders": "true"}

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        on_batch: Callable[[LandBatch], None] | None = None,
    ) -> None:
        """`options` are those of `format("holdfast")`, and `storage_options` those of the object store. Without a
        `checkpoint`, a query with an instance id has one by that name, in the table, or below the user's cache if the
        table is in an object store. A query without an id starts at the offsets of its group. Raises ConfigError."""
        super().__init__(spark, path, options, checkpoint, storage_options)
        self._on_batch = on_batch
        self._log = DeltaLog(self._location)
        self._table_writer = TableWriter(
            self._log,
            TableFiles(self._location),
            self._new_writer_id(),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _prepare(self, rows: DataFrame) -> DataFrame:
        """A table that cannot be landed into, or not be reached, is reported before the query starts."""
        self._log.ends(())
        return rows

    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> LandResult:  # noqa: ARG002 - read again
        return self._table_writer.land(ranges, self._write)

    def _report_batch(self, number: int, done: LandResult, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(LandBatch(number, done, seconds))

    def _write(self, ranges: Sequence[OffsetRange]) -> list[DataFile]:
        """The tasks read the ranges themselves, and not the rows of the batch: Spark's conversion of rows for a Python
        function takes four times as long as all the rest (docs/decisions/0035-land-reads-in-its-tasks.md)."""
        from holdfast.spark.pipelines.land.parquet_writer import REPORT, file_of

        tasks = split_into_tasks(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        if not tasks:
            return []
        numbers = self._spark.range(0, len(tasks), numPartitions=len(tasks))
        reports = numbers.mapInArrow(_on_executor(self._location, tasks, self._options), REPORT).collect()
        return [file_of(report) for report in reports]

    def _delete_temporary(self) -> None:
        super()._delete_temporary()
        self._log.close()


def _on_executor(
    location: Location, tasks: Sequence[Sequence[OffsetRange]], options: ReadOptions
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Gets the numbers of the tasks as rows, and writes the files of these tasks."""
    kafka = options.record_settings
    include_headers, fail_on_data_loss = options.include_headers, options.fail_on_data_loss

    def write(numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.fetching import read_ranges
        from holdfast.spark.pipelines.land.parquet_writer import write_rows

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                rows = read_ranges(
                    tasks[number], kafka, include_headers=include_headers, fail_on_data_loss=fail_on_data_loss
                )
                yield from write_rows(rows, location)

    return write
