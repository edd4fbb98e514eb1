"""On the executors: rows of a batch into Parquet files, one for each topic, partition and date.

A file has its final name from the start, because no entry of the table's log lists it before it is complete. An error
of the disk or the object store is reported as a row, like the files, so that the user reads one sentence and not the
stack trace of a task.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.location import Location

REPORT: Final = (
    "path STRING, topic STRING, partition INT, date STRING, first BIGINT, end BIGINT, rows BIGINT, size_bytes BIGINT, "
    "min_time_us BIGINT, max_time_us BIGINT, problem STRING, errno INT"
)
"""The report of a task to the driver: its files, or an error."""
REPORT_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("date", pa.string()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("min_time_us", pa.int64()),
        ("max_time_us", pa.int64()),
        ("problem", pa.string()),
        ("errno", pa.int32()),
    ]
)
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
MAX_BUFFERED_BYTES: Final = 128 * 1024 * 1024
"""Bytes that a task buffers: for one file, and for all open files."""
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
"""Days since 1970. A producer may write any timestamp; those without a date are stored under the nearest one."""
_UTC: Final = pa.timestamp("us", "UTC")
OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    # Values are rarely equal; offsets and timestamps grow in small steps.
    "use_dictionary": ["key", "partition", "timestampType"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "store_schema": False,
}

Key = tuple[str, int, int]
"""Topic, partition, and the days since 1970."""


def write_rows(batches: Iterable[pa.RecordBatch], location: Location) -> Iterator[pa.RecordBatch]:
    """Writes the rows. Yields rows of `REPORT`."""
    files = _Files(TableFiles(location))
    try:
        for batch in batches:
            for key, rows in split(batch):
                files.add(key, rows)
        reports = [_report(file) for file in files.close()]
    except OSError as error:
        files.abort()
        reports = [problem_report(error)]
    except BaseException:  # the rows are read here, too
        files.abort()
        raise
    if reports:
        yield pa.RecordBatch.from_pylist(reports, REPORT_SCHEMA)


def split(batch: pa.RecordBatch) -> list[tuple[Key, pa.RecordBatch]]:
    """By topic, partition and date. Most batches have one of each."""
    if batch.num_rows == 0:
        return []
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    numbers = batch.column("partition").to_numpy(zero_copy_only=False)
    days = np.clip(_microseconds(batch) // _DAY_US, _FIRST_DAY, _LAST_DAY)
    if all(one.min() == one.max() for one in (codes, numbers, days)):
        return [((topics.dictionary[0].as_py(), int(numbers[0]), int(days[0])), batch)]
    keys, which = np.unique(np.stack([codes, numbers, days], axis=1), axis=0, return_inverse=True)
    return [
        ((topics.dictionary[int(code)].as_py(), int(number), int(day)), batch.filter(pa.array(which.reshape(-1) == at)))
        for at, (code, number, day) in enumerate(keys)
    ]


def _microseconds(batch: pa.RecordBatch) -> Any:
    return batch.column("timestamp").cast(_UTC).view(pa.int64()).to_numpy(zero_copy_only=False)


class _Files:
    """The files that a task has open."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._open: dict[Key, _OpenFile] = {}

    def add(self, key: Key, rows: pa.RecordBatch) -> None:
        if key not in self._open:
            self._open[key] = _OpenFile(self._files, key, rows)
        self._open[key].add(rows)
        if sum(one.buffered_bytes for one in self._open.values()) >= MAX_BUFFERED_BYTES:
            for one in self._open.values():
                one.flush()

    def close(self) -> list[DataFile]:
        return [one.close() for _, one in sorted(self._open.items())]

    def abort(self) -> None:
        for one in self._open.values():
            one.abort()


class _OpenFile:
    def __init__(self, files: TableFiles, key: Key, rows: pa.RecordBatch) -> None:
        self._topic, self._partition, day = key
        self._date = date.fromordinal(_EPOCH + day).isoformat()
        first = pc.min(rows.column("offset")).as_py()
        self._path = file_path(self._topic, self._date, self._partition, first)
        self._files = files
        self._first: int = first
        self._end: int = first
        self._min_time_us = self._max_time_us = int(_microseconds(rows)[0])
        self._rows = 0
        self._buffered: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self._schema = _file_columns(rows).schema
        self._local = files.local_path(self._path)
        self._closing: list[Callable[[], Any]] = [self._local.unlink]
        try:
            self._sink = open_sink(self._local)
            self._closing.insert(0, self._sink.close)
            self._parquet = pq.ParquetWriter(self._sink, self._schema, **OPTIONS)
            self._closing.insert(0, self._parquet.close)
        except BaseException:
            self.abort()
            raise

    def add(self, rows: pa.RecordBatch) -> None:
        offsets, times = pc.min_max(rows.column("offset")), _microseconds(rows)
        self._first = min(self._first, offsets["min"].as_py())
        self._end = max(self._end, offsets["max"].as_py() + 1)
        self._min_time_us = min(self._min_time_us, int(times.min()))
        self._max_time_us = max(self._max_time_us, int(times.max()))
        self._rows += rows.num_rows
        stored = _file_columns(rows)
        self._buffered.append(stored)
        self.buffered_bytes += stored.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffered:
            buffered, self._buffered, self.buffered_bytes = self._buffered, [], 0
            table = pa.Table.from_batches(buffered, self._schema)
            self._parquet.write_table(table, row_group_size=table.num_rows)

    def close(self) -> DataFile:
        self.flush()
        self._parquet.close()
        self._sink.close()
        return DataFile(
            self._path,
            self._topic,
            self._partition,
            self._date,
            self._first,
            self._end,
            self._rows,
            self._files.publish(self._path, self._local),
            self._min_time_us,
            self._max_time_us,
        )

    def abort(self) -> None:
        """On a full disk closing fails as well, and the partial file must be deleted."""
        for close in self._closing:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                close()


def file_path(topic: str, day: str, partition: int, first: int) -> str:
    return f"topic={topic}/date={day}/{partition}-{first:020d}-{uuid.uuid4().hex}.parquet"


def open_sink(path: Any) -> Any:
    return pa.OSFile(str(path), "wb")


def _file_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a file: the topic is in its path."""
    names = [name for name in rows.schema.names if name != "topic"]
    columns = [rows.column(name).cast(_UTC) if name == "timestamp" else rows.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def _report(file: DataFile) -> dict[str, Any]:
    return {**dict.fromkeys(REPORT_SCHEMA.names), **asdict(file)}


def problem_report(error: OSError) -> dict[str, Any]:
    return {**dict.fromkeys(REPORT_SCHEMA.names), "problem": f"{error.strerror or error}", "errno": error.errno}


def file_of(report: Any) -> DataFile:
    """The file of a row of `REPORT`. Raises OSError if the row is an error."""
    fields = {name: report[name] for name in REPORT_SCHEMA.names}
    problem, errno = fields.pop("problem"), fields.pop("errno")
    if problem is not None:
        raise OSError(errno, problem)
    return DataFile(**fields)
