"""The tables of the report as Delta tables.

The executors write the Parquet files, and the driver lists them in one commit per table, without reading the rows. The
commit is version 0 of a new table: all Parquet files in the directory belong to the table, and programs that read only
Parquet see the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import parquet as pq

from holdfast.spark.pipelines.forensics.tables import TABLES

if TYPE_CHECKING:
    from pyarrow.compute import Expression


def commit_tables(directory: Path) -> None:
    """Creates the log of each table, with all of its files. Raises OSError if the file system returns an error."""
    for name, schema in TABLES.items():
        table = directory / name
        files = [_add(path) for path in sorted(table.glob("*.parquet"))]
        try:
            create_table_with_add_actions(str(table), Schema.from_arrow(schema), files, mode="error", partition_by=[])
        except (DeltaError, OSError) as error:
            raise _as_os_error(error) from error


def read_batches(table: Path, wanted: Expression | None = None) -> Iterator[pa.RecordBatch]:
    """The rows that match, a batch at a time."""
    yield from DeltaTable(table).to_pyarrow_dataset().to_batches(filter=wanted)


def _add(path: Path) -> AddAction:
    found = path.stat()
    stats = json.dumps({"numRecords": pq.read_metadata(path).num_rows})
    return AddAction(path.name, found.st_size, {}, found.st_mtime_ns // 1_000_000, True, stats)


def _as_os_error(error: Exception) -> OSError:
    """delta-rs has the number of the error only in its text."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    first_line = str(error).partition("\n")[0]
    return OSError(int(number[1]), first_line) if number else OSError(None, first_line)
