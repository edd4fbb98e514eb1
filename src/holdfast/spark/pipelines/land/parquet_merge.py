"""On the executors: merges Parquet files of a partition and date into one, row group by row group."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from holdfast.spark.pipelines.land.manifest import DataFile
from holdfast.spark.pipelines.land.parquet_writer import OPTIONS, ROW_GROUP_BYTES, open_sink, sync_file

REPORT: Final = (
    "at INT, path STRING, date STRING, first BIGINT, end BIGINT, rows BIGINT, size_bytes BIGINT, problem STRING,"
    " errno INT"
)
_REPORT: Final = pa.schema(
    [
        ("at", pa.int32()),
        ("path", pa.string()),
        ("date", pa.string()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("problem", pa.string()),
        ("errno", pa.int32()),
    ]
)


def merge_rows(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[pa.RecordBatch]:
    """Rows of `at` and the JSON of a merge; yields rows of `REPORT`."""
    for batch in batches:
        for row in batch.to_pylist():
            report: dict[str, Any] = dict.fromkeys(_REPORT.names) | {"at": row["at"]}
            merge = json.loads(row["merge"])
            try:
                file = merge_files(Path(table), [DataFile(**one) for one in merge["files"]])
                report |= {name: getattr(file, name) for name in ("path", "date", "first", "end", "rows", "size_bytes")}
            except OSError as error:
                report |= {"problem": error.strerror or str(error), "errno": error.errno}
            yield pa.RecordBatch.from_pylist([report], _REPORT)


def merge_files(table: Path, files: Sequence[DataFile]) -> DataFile:
    """In the given order, which is that of their offsets."""
    first = min(file.first for file in files)
    beside = Path(files[0].path)
    partition = beside.name.partition("-")[0]
    path = beside.with_name(f"{partition}-{first:020d}-{uuid.uuid4().hex}.parquet")
    whole = table / path
    try:
        with open_sink(whole) as sink:
            rows = _copy([table / file.path for file in files], sink)
        sync_file(whole)
    except OSError:
        with contextlib.suppress(OSError):
            whole.unlink(missing_ok=True)
        raise
    assert rows == sum(file.rows for file in files), f"{path} has {rows} rows"
    return DataFile(path.as_posix(), files[0].date, first, max(file.end for file in files), rows, whole.stat().st_size)


def _copy(sources: Sequence[Path], sink: Any) -> int:
    """With headers if any of the files has them."""
    schema = pa.unify_schemas([pq.read_schema(source) for source in sources])
    rows = 0
    with pq.ParquetWriter(sink, schema, **OPTIONS) as writer:
        buffered: list[pa.Table] = []
        buffered_bytes = 0
        for source in sources:
            with pq.ParquetFile(source) as file:
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
