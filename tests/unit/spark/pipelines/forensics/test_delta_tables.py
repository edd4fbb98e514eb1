"""The tables of a report, read back by deltalake, Polars, DuckDB and readers of plain Parquet."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute
from pyarrow import parquet as pq

from holdfast.spark.pipelines.forensics import delta_tables
from holdfast.spark.pipelines.forensics.delta_tables import commit_tables, read_batches
from holdfast.spark.pipelines.forensics.report_dir import REPORT_FILE, ReportUnwritable, keep_only, staged
from holdfast.spark.pipelines.forensics.tables import TABLES

ROWS = [
    {
        "group_id": "orders",
        "rebalances": 3,
        "is_lower_bound": True,
        "causes": [("joined", 2), ("left", 1)],
    },
    {"group_id": "payments", "rebalances": 2**62, "is_lower_bound": False, "causes": []},
]


def by_deltalake(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def by_polars(table: Path) -> list[dict[str, Any]]:
    return polars.read_delta(str(table)).to_dicts()


def by_duckdb(table: Path) -> list[dict[str, Any]]:
    dataset = DeltaTable(table).to_pyarrow_dataset()
    rows: list[dict[str, Any]] = duckdb.from_arrow(dataset).to_arrow_table().to_pylist()
    return rows


def by_parquet(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return rows


Reader = Callable[[Path], list[dict[str, Any]]]
READERS: list[Reader] = [by_deltalake, by_polars, by_duckdb, by_parquet]


def written(directory: Path) -> None:
    """Given: two files of `summary`, as two tasks write them, and a file of a task that was run again."""
    (directory / "summary").mkdir(parents=True)
    files = []
    for number, row in enumerate(ROWS):
        files.append(f"summary/{number}.parquet")
        pq.write_table(pa.Table.from_pylist([row], TABLES["summary"]), directory / files[-1], compression="zstd")
    pq.write_table(pa.Table.from_pylist(ROWS, TABLES["summary"]), directory / "summary" / "again.parquet")
    keep_only(directory, files)
    commit_tables(directory)


@pytest.mark.parametrize("rows_of", READERS)
def test_each_reader_finds_the_rows_of_all_tasks(tmp_path: Path, rows_of: Reader) -> None:
    written(tmp_path)

    rows = sorted(rows_of(tmp_path / "summary"), key=lambda row: str(row["group_id"]))

    assert [[row[name] for name in ("group_id", "rebalances", "is_lower_bound", "facts")] for row in rows] == [
        ["orders", 3, True, None],
        ["payments", 2**62, False, None],
    ]
    assert [dict(row["causes"]) for row in rows] == [{"joined": 2, "left": 1}, {}]


@pytest.mark.parametrize("rows_of", READERS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_rows_has_its_columns(tmp_path: Path, name: str, rows_of: Reader) -> None:
    keep_only(tmp_path, [])
    commit_tables(tmp_path)

    assert rows_of(tmp_path / name) == []
    fields = json.loads(DeltaTable(tmp_path / name).schema().to_json())["fields"]
    assert [field["name"] for field in fields] == TABLES[name].names


def test_the_log_has_one_version_with_the_number_of_rows_of_each_file(tmp_path: Path) -> None:
    written(tmp_path)

    table = DeltaTable(tmp_path / "summary")

    assert table.version() == 0
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), "old readers can read it"
    added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert [(row["path"], row["num_records"]) for row in added] == [("0.parquet", 1), ("1.parquet", 1)]
    assert [row["size_bytes"] for row in added] == [
        (tmp_path / "summary" / row["path"]).stat().st_size for row in added
    ]


def test_rows_are_read_by_group(tmp_path: Path) -> None:
    written(tmp_path)

    batches = [*read_batches(tmp_path / "summary", compute.field("group_id") == "orders")]

    assert [row["group_id"] for batch in batches for row in batch.to_pylist()] == ["orders"]
    assert sum(len(batch) for batch in read_batches(tmp_path / "summary")) == 2, "the control"


def test_a_report_of_delta_tables_replaces_one_of_parquet_files_whole(tmp_path: Path) -> None:
    out = tmp_path / "a report, 100% #1 é"
    with staged(out) as directory:
        keep_only(directory, [])
        (directory / "summary" / "of-the-earlier-report.parquet").write_bytes(b"")
        (directory / REPORT_FILE).write_text('{"forensics": 1}')
    for _ in range(2):
        with staged(out) as directory:
            written(directory)
            (directory / REPORT_FILE).write_text('{"forensics": 1}')

    assert sorted(path.name for path in (out / "summary").iterdir()) == ["0.parquet", "1.parquet", "_delta_log"]
    assert len(by_deltalake(out / "summary")) == 2, "the paths in the log are relative"


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError("Generic LocalFileSystem error: No space left on device (os error 28)"), "there is no room left for"),
        (DeltaError("Unable to write (os error 5)\nand more"), r"report: Unable to write \(os error 5\); nothing was"),
        (DeltaError("something else"), "report: something else; nothing was"),
    ],
)
def test_an_error_of_delta_leaves_the_earlier_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    out = tmp_path / "report"
    with staged(out) as directory:
        written(directory)

    def fails(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(delta_tables, "create_table_with_add_actions", fails)

    with pytest.raises(ReportUnwritable, match=said) as raised, staged(out) as directory:
        written(directory)

    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno in (errno.ENOSPC, errno.EIO, None)
    assert len(by_deltalake(out / "summary")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
