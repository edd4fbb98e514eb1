"""What the executors do: thin the commits out, and follow each group through its facts into the tables' files.

A task writes its rows itself, into files of its own, and reports their names. What a task wrote that was run again is
in no report, and not in the tables.
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

from holdfast.spark.pipelines.forensics.facts import Kind
from holdfast.spark.pipelines.forensics.life import Life
from holdfast.spark.pipelines.forensics.rules import Rules
from holdfast.spark.pipelines.forensics.tables import TABLES
from holdfast.spark.pipelines.forensics.thinning import Fact, Thinning

FACT: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("at_ms", pa.int64()),
        ("place", pa.int64()),
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
_ROWS_AT_ONCE: Final = 10_000
ROWS_IN_A_GROUP: Final = 10_000
"""Of one table, until they are written: so many rows of all tables are in memory at most."""


def thin(batches: Iterable[pa.RecordBatch], groups: Collection[str] | None) -> Iterator[pa.RecordBatch]:
    """Rows of key, value, at_ms and offset, each partition's in its order; yields `FACTS`."""
    thinning = Thinning(groups)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("key", "value", "at_ms", "offset"))
        yield from _as_batches(thinning.facts(zip(*columns, strict=True)))
    yield from _as_batches(thinning.counted())


def _as_batches(facts: Iterator[Fact]) -> Iterator[pa.RecordBatch]:
    while rows := [*islice(facts, _ROWS_AT_ONCE)]:
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), FACT, strict=True)],
            schema=FACT,
        )


def follow(batches: Iterable[pa.RecordBatch], directory: str, rules: Rules) -> Iterator[pa.RecordBatch]:
    """Rows of `FACTS`, by group and time; yields one row of `REPORT`."""
    writer = Writer(Path(directory))
    unread: Counter[str] = Counter()
    report: dict[str, Any] = dict.fromkeys(_REPORT.names)
    try:
        _follow(batches, writer, rules, unread)
        writer.close()
    except OSError as error:
        writer.abandon()
        report |= {"problem": error.strerror or str(error), "errno": error.errno}
    yield pa.RecordBatch.from_pylist(
        [report | {"files": json.dumps(writer.files), "unread": json.dumps(unread)}], _REPORT
    )


def _follow(batches: Iterable[pa.RecordBatch], writer: Writer, rules: Rules, unread: Counter[str]) -> None:
    life: Life | None = None
    at: str | None = None
    for batch in batches:
        for fact in map(Fact._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            if fact.kind == Kind.UNREAD:
                unread[(fact.body or b"").decode()] += fact.after or 0
                continue
            if life is None or fact.group_id != at:
                if life is not None:
                    life.finish()
                at = fact.group_id
                life = Life(rules, writer.of(at), unread)
            life.on(fact)
    if life is not None:
        life.finish()


class Writer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._writers: dict[str, pq.ParquetWriter] = {}

    @property
    def files(self) -> list[str]:
        return [f"{table}/{self._name}" for table in self._writers]

    def of(self, group_id: str) -> Any:
        def emit(table: str, row: Mapping[str, Any]) -> None:
            rows = self._rows[table]
            rows.append({"group_id": group_id, **row})
            if len(rows) >= ROWS_IN_A_GROUP:
                self._write(table)

        return emit

    def close(self) -> None:
        for table in TABLES:
            if self._rows[table]:
                self._write(table)
        for writer in self._writers.values():
            writer.close()

    def abandon(self) -> None:
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
        # Records with times from anywhere: between two of them, many partitions may have waited for longer than 64 bits
        # can say. The rest of the table is right all the same.
        most = 2**63 - 1
        return pa.array([None if one is None else min(max(one, -most), most) for one in values], kind)
