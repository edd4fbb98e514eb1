"""The streaming query that lands topics: `Land(spark, "lake", {...}).start()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land.lander import Landed, Lander, Write, Written
from holdfast.spark.pipelines.land.manifest import DataFile
from holdfast.spark.pipelines.land.store import ManifestStore
from holdfast.spark.pipelines.query import AT_ONCE, PipelineQuery

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession


class Batch(NamedTuple):
    number: int
    landed: Landed
    seconds: float


class Land(PipelineQuery[Landed]):
    """Lands what `options` subscribe to, as a member of their group, into the table at `path`."""

    NAME: ClassVar = "land"
    KEPT: ClassVar = "table"
    CHECKPOINTS: ClassVar = "_checkpoints"

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> None:
        """`options` are those of `format("holdfast")`. Without a `checkpoint`, a query with an instance id has one in
        the table, by that name, and one without an id begins where its group is. Raises ConfigError."""
        super().__init__(spark, path, options, checkpoint)
        self._on_batch = on_batch
        self._lander = Lander(
            ManifestStore(self._path),
            self._writer(),
            fail_on_data_loss=self._options.fail_on_data_loss,
            at_once=AT_ONCE,
        )

    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> Landed:
        return self._lander.land(ranges, self._writing(rows))

    def _tell(self, number: int, done: Landed, seconds: float) -> None:
        if self._on_batch is not None:
            self._on_batch(Batch(number, done, seconds))

    def _writing(self, rows: DataFrame) -> Write:
        from holdfast.spark.pipelines.land.writing import REPORT

        def write(floors: Mapping[Where, int]) -> list[Written]:
            reports = rows.mapInArrow(_on_executor(str(self._path), dict(floors)), REPORT).collect()
            for report in reports:
                if report.problem is not None:
                    raise Unwritable.because(self._path, OSError(report.errno, report.problem))
            return [
                Written(
                    (one.topic, one.partition),
                    DataFile(one.path, one.date, one.first, one.end, one.rows, one.size_bytes),
                )
                for one in reports
            ]

        return write


def _on_executor(
    table: str, floors: dict[Where, int]
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.land.writing import write_rows

        return write_rows(batches, table, floors)

    return write
