"""On the executors: merges Parquet files of a partition and date into one, row group by row group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from holdfast.spark.pipelines.land import parquet_writer
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.parquet_writer import OPTIONS, ROW_GROUP_BYTES, file_path, open_sink, problem_report
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.location import Location

REPORT: Final = f"at INT, {parquet_writer.REPORT}"
_REPORT: Final = pa.schema([("at", pa.int32()), *parquet_writer.REPORT_SCHEMA])


def merge_rows(batches: Iterable[pa.RecordBatch], location: Location) -> Iterator[pa.RecordBatch]:
    """Rows of `at` and the JSON of the files of a merge; yields rows of `REPORT`."""
    files = TableFiles(location)
    for batch in batches:
        for row in batch.to_pylist():
            report: dict[str, Any] = dict.fromkeys(_REPORT.names)
            try:
                merged = merge_files(files, [DataFile(**one) for one in json.loads(row["files"])])
                report |= asdict(merged)
            except OSError as error:
                report |= problem_report(error)
            yield pa.RecordBatch.from_pylist([{**report, "at": row["at"]}], _REPORT)


def merge_files(files: TableFiles, sources: Sequence[DataFile]) -> DataFile:
    """In the given order, which is that of their offsets."""
    one = sources[0]
    first = min(source.first for source in sources)
    path = file_path(one.topic, one.date, one.partition, first)
    local = files.local_path(path)
    try:
        with open_sink(local) as sink:
            rows = _copy(files, sources, sink)
        size_bytes = files.publish(path, local)
    except BaseException:
        with contextlib.suppress(OSError):
            local.unlink(missing_ok=True)
        raise
    assert rows == sum(source.rows for source in sources), f"{path} has {rows} rows"
    return DataFile(
        path,
        one.topic,
        one.partition,
        one.date,
        first,
        max(source.end for source in sources),
        rows,
        size_bytes,
        min(source.min_time_us for source in sources),
        max(source.max_time_us for source in sources),
    )


def _copy(files: TableFiles, sources: Sequence[DataFile], sink: Any) -> int:
    """With headers, and with columns of other programs, if any of the files has them."""
    with contextlib.ExitStack() as stack:
        paths = [stack.enter_context(files.reading(source.path)) for source in sources]
        schema = pa.unify_schemas([pq.read_schema(path) for path in paths])
        rows = 0
        writer = stack.enter_context(pq.ParquetWriter(sink, schema, **OPTIONS))
        buffered: list[pa.Table] = []
        buffered_bytes = 0
        for path in paths:
            with pq.ParquetFile(path) as file:
                for number in range(file.num_row_groups):
                    group = _with_columns(file.read_row_group(number), schema)
                    rows += group.num_rows
                    buffered.append(group)
                    buffered_bytes += group.nbytes
                    if buffered_bytes >= ROW_GROUP_BYTES:
                        _write(writer, buffered)
                        buffered, buffered_bytes = [], 0
        _write(writer, buffered)
    return rows


def _write(writer: pq.ParquetWriter, buffered: Sequence[pa.Table]) -> None:
    if buffered:
        table = pa.concat_tables(buffered)
        writer.write_table(table, row_group_size=max(1, table.num_rows))


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names)
