"""Tables without Spark: topics as lists of numbers, and batches as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import application_id
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.parquet_merge import merge_files
from holdfast.spark.pipelines.land.parquet_writer import file_of, write_rows
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.land.writer import TableWriter, Write
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.types import TopicPartition

DAY_MS = 86_400_000
A_DATE_MS = 1_794_787_200_000
"""2026-11-16."""
TOPIC = "numbers"

Row = tuple[str, int, int, bytes]
"""Topic, partition, offset, value."""


def record_batch(of: Iterable[tuple[OffsetRange, int]], without: Iterable[int] = ()) -> pa.RecordBatch:
    """The records of the ranges, each range with the milliseconds of its records' time, as the source gives them."""
    rows = [
        {
            "key": None,
            "value": value_of(one.where, offset),
            "topic": one.topic,
            "partition": one.partition,
            "offset": offset,
            "timestamp": at_ms * 1000,
            "timestampType": 0,
        }
        for one, at_ms in of
        for offset in range(one.start, one.end)
        if offset not in without
    ]
    return pa.RecordBatch.from_pylist(rows, arrow.schema(False))


def value_of(where: TopicPartition, offset: int) -> bytes:
    return f"{where[0]}-{where[1]}@{offset}".encode()


def writing(table: Location, at_ms: int = A_DATE_MS, without: Iterable[int] = ()) -> Write:
    """What Spark's tasks do: read ranges and write their records."""
    gone = frozenset(without)

    def write(ranges: Sequence[OffsetRange]) -> list[DataFile]:
        batches = iter([record_batch([(one, at_ms)], gone) for one in ranges])
        return list(written(write_rows(batches, table)))

    return write


def written(reports: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    for report in reports:
        for row in report.to_pylist():
            yield file_of(row)


def new_writer(
    table: Location, files: SharedFiles | None = None, *, name: str = "writer", fail_on_data_loss: bool = True
) -> TableWriter:
    return TableWriter(DeltaLog(table, files), TableFiles(table, files), name, fail_on_data_loss=fail_on_data_loss)


def land(
    table: Location,
    *ranges: tuple[int, int, int],
    files: SharedFiles | None = None,
    at_ms: int = A_DATE_MS,
    fail_on_data_loss: bool = True,
) -> None:
    """A new writer lands (partition, start, end) in one batch."""
    wanted = [OffsetRange(TOPIC, *one) for one in ranges]
    new_writer(table, files, fail_on_data_loss=fail_on_data_loss).land(wanted, writing(table, at_ms))


def opened(table: Location) -> DeltaTable:
    return DeltaTable(table.url, storage_options=dict(table.storage_options) or None)


def rows_of(table: Location) -> list[Row]:
    """All rows, as delta-rs reads them."""
    if not DeltaTable.is_deltatable(table.url, dict(table.storage_options) or None):
        return []
    read = opened(table).to_pyarrow_table(columns=["topic", "partition", "offset", "value"])
    return sorted(zip(*(read.column(name).to_pylist() for name in read.column_names), strict=True))


def end_of(table: Location, partition: int = 0) -> int | None:
    return opened(table).transaction_version(application_id((TOPIC, partition)))


def every(*ranges: tuple[int, int, int]) -> list[Row]:
    """Each record of (partition, start, end) once."""
    return sorted(
        (TOPIC, partition, offset, value_of((TOPIC, partition), offset))
        for partition, start, end in ranges
        for offset in range(start, end)
    )


def compaction(
    table: Location, *, now_s: Callable[[], float], grace_s: float = 3600, files: SharedFiles | None = None
) -> Compaction:
    """With what Spark's tasks do, done here."""
    table_files = TableFiles(table)

    def merge_all(merges: Sequence[Merge]) -> list[DataFile]:
        return [merge_files(table_files, merge.files) for merge in merges]

    return Compaction(table, merge_all, grace_s=grace_s, now_s=now_s, files=files)


def data_files(table: Location) -> set[str]:
    """The Parquet files that exist, whether they are in the table or not."""
    if table.is_local:
        return {path.relative_to(table.path).as_posix() for path in table.path.glob("topic=*/date=*/*.parquet")}
    import obstore

    found = {one["path"] for page in obstore.list(table.store) for one in page}
    return {path for path in found if path.startswith("topic=")}


def listed_files(table: Location) -> set[str]:
    """The Parquet files that are in the table."""
    return set(opened(table).get_add_actions(flatten=True)["path"].to_pylist())
