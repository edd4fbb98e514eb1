"""The work of the executors: filter the commits, and analyze each group into the files of the tables.

A task writes its rows into files of its own, and reports their names. Files of a task that was run again are in no
report, and not in the tables.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from holdfast.spark.pipelines.forensics.commit_filter import CommitFilter, HistoryRecord
from holdfast.spark.pipelines.forensics.group_analysis import GroupAnalysis
from holdfast.spark.pipelines.forensics.records import RecordKind
from holdfast.spark.pipelines.forensics.tables import TABLES
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

RECORD_SCHEMA: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("at_ms", pa.int64()),
        ("offset", pa.int64()),
        ("kind", pa.int32()),
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("before", pa.int64()),
        ("after", pa.int64()),
    ]
)
REPORT: Final = "files STRING, unread STRING, problem STRING, errno INT"
_REPORT: Final = pa.schema(
    [("files", pa.string()), ("unread", pa.string()), ("problem", pa.string()), ("errno", pa.int32())]
)
_ROWS_PER_BATCH: Final = 10_000
ROW_GROUP_ROWS: Final = 10_000
"""Rows of one table that are buffered before they are written."""


def filter_commits(batches: Iterable[pa.RecordBatch], groups: Collection[str] | None) -> Iterator[pa.RecordBatch]:
    """Rows of key, value, at_ms and offset, each partition in order; yields `RECORD_COLUMNS`."""
    thinning = CommitFilter(groups)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("key", "value", "at_ms", "offset"))
        yield from _as_batches(thinning.records(zip(*columns, strict=True)))
    yield from _as_batches(thinning.unreadable_counts())


def _as_batches(facts: Iterator[HistoryRecord]) -> Iterator[pa.RecordBatch]:
    while rows := [*islice(facts, _ROWS_PER_BATCH)]:
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), RECORD_SCHEMA, strict=True)
            ],
            schema=RECORD_SCHEMA,
        )


def analyze(batches: Iterable[pa.RecordBatch], directory: str, rules: ForensicsThresholds) -> Iterator[pa.RecordBatch]:
    """Rows of `RECORD_COLUMNS`, by group and time; yields one row of `REPORT`."""
    writer = TableFiles(Path(directory))
    unread: Counter[str] = Counter()
    report: dict[str, Any] = dict.fromkeys(_REPORT.names)
    try:
        _analyze(batches, writer, rules, unread)
        writer.close()
    except OSError as error:
        writer.delete()
        report |= {"problem": error.strerror or str(error), "errno": error.errno}
    yield pa.RecordBatch.from_pylist(
        [report | {"files": json.dumps(writer.files), "unread": json.dumps(unread)}], _REPORT
    )


def _analyze(
    batches: Iterable[pa.RecordBatch], writer: TableFiles, rules: ForensicsThresholds, unread: Counter[str]
) -> None:
    life: GroupAnalysis | None = None
    at: str | None = None
    for batch in batches:
        for fact in map(HistoryRecord._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            if fact.kind == RecordKind.UNREADABLE:
                unread[(fact.body or b"").decode()] += fact.after or 0
                continue
            if life is None or fact.group_id != at:
                if life is not None:
                    life.finish()
                at = fact.group_id
                life = GroupAnalysis(rules, writer.emit_for(at), unread)
            life.add(fact)
    if life is not None:
        life.finish()


class TableFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._writers: dict[str, pq.ParquetWriter] = {}

    @property
    def files(self) -> list[str]:
        return [f"{table}/{self._name}" for table in self._writers]

    def emit_for(self, group_id: str) -> Any:
        def emit(table: str, row: Mapping[str, Any]) -> None:
            rows = self._rows[table]
            rows.append({"group_id": group_id, **row})
            if len(rows) >= ROW_GROUP_ROWS:
                self._write(table)

        return emit

    def close(self) -> None:
        for table in TABLES:
            if self._rows[table]:
                self._write(table)
        for writer in self._writers.values():
            writer.close()

    def delete(self) -> None:
        for name in self.files:
            (self._directory / name).unlink(missing_ok=True)

    def _write(self, table: str) -> None:
        rows, self._rows[table] = self._rows[table], []
        writer = self._writers.get(table)
        if writer is None:
            path = self._directory / table / self._name
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = self._writers[table] = pq.ParquetWriter(path, TABLES[table], compression="zstd")
        writer.write_batch(_as_batch(table, rows))


def _as_batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = TABLES[table]
    arrays = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_map(field.type):
            values = [[*value.items()] for value in values]
        arrays.append(_as_array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except OverflowError:
        # Records may have any timestamp: the product of partitions and time between two of them may exceed 64 bits. The
        # other values of the table are still right.
        most = 2**63 - 1
        return pa.array([None if one is None else min(max(one, -most), most) for one in values], kind)
