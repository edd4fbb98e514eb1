"""A table that Holdfast has written, read by engines that others have written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_table import write_checkpoint
from holdfast.spark.pipelines.land.parquet_writer import write_rows
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import A_DATE_MS, DAY_MS, compaction, new_writer, opened, written

TOPIC = "orders"
EACH = 5
HEADERS = [{"key": "trace", "value": b"1"}, {"key": "null", "value": None}]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "date"]


def rows_at(offset: int, partition: int) -> dict[str, object]:
    """A record; some have no key and value, some have headers."""
    return {
        "key": None if offset % 3 == 0 else b"\xff%d" % offset,
        "value": None if offset % 4 == 3 else b"value %d" % offset,
        "topic": TOPIC,
        "partition": partition,
        "offset": offset,
        "timestamp": (A_DATE_MS + offset // EACH * DAY_MS + offset) * 1000,
        "timestampType": offset % 2,
        "headers": HEADERS if offset % 2 else None,
    }


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Three batches of two partitions and three days, with a checkpoint of the log and a compaction."""
    if request.param == "disk":
        location = Location.parse(tmp_path / "lake")
    else:
        s3: S3Emulator = request.getfixturevalue("s3")
        location = Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)
    writer = new_writer(location)
    for number in range(3):
        wanted = [OffsetRange(TOPIC, at, number * EACH, number * EACH + EACH) for at in range(2)]

        def write(wanted: Sequence[OffsetRange]) -> list[DataFile]:
            rows = [rows_at(offset, one.partition) for one in wanted for offset in range(one.start, one.end)]
            batch = pa.RecordBatch.from_pylist(rows, arrow.schema(True))
            return list(written(write_rows([batch], location)))

        writer.land(wanted, write)
    write_checkpoint(location)
    compaction(location, now_s=lambda: A_DATE_MS / 1000 + 1.5 * 86400).run()
    return location


def expected() -> list[dict[str, object]]:
    rows = [rows_at(offset, partition) for partition in range(2) for offset in range(3 * EACH)]
    as_arrow = pa.RecordBatch.from_pylist(rows, arrow.schema(True)).to_pylist()
    days = [date(2026, 11, 16 + offset // EACH) for _ in range(2) for offset in range(3 * EACH)]
    return [{**row, "date": day} for row, day in zip(as_arrow, days, strict=True)]


def in_order(rows: pa.Table) -> list[dict[str, object]]:
    return [
        {name: row[name] for name in COLUMNS}
        for row in rows.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    ]


def test_pyarrow_reads_every_record_and_skips_files_by_their_statistics(table: Location) -> None:
    dataset = opened(table).to_pyarrow_dataset()

    assert in_order(dataset.to_table()) == expected()
    wanted = (pc.field("partition") == 1) & (pc.field("offset") >= 12)
    assert len(list(dataset.get_fragments(filter=wanted))) == 1, "of six files"
    assert dataset.to_table(filter=wanted).num_rows == 3


def test_polars_reads_every_record(table: Location) -> None:
    read = pl.read_delta(table.url, storage_options=dict(table.storage_options) or None)

    assert in_order(read.to_arrow().cast(expected_schema())) == expected()


def test_duckdb_reads_every_record_over_arrow(table: Location) -> None:
    landed = opened(table).to_pyarrow_dataset()

    with duckdb.connect() as connection:
        connection.register("landed", landed)
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql("SELECT * FROM landed").to_arrow_table().cast(expected_schema())
        counted = connection.sql(
            'SELECT partition, count(*), max("offset") FROM landed '
            "WHERE date = DATE '2026-11-17' GROUP BY 1 ORDER BY 1"
        ).fetchall()

    assert in_order(rows) == expected()
    assert counted == [(0, EACH, 2 * EACH - 1), (1, EACH, 2 * EACH - 1)]


def expected_schema() -> pa.Schema:
    fields = {field.name: field for field in arrow.schema(True)} | {"date": pa.field("date", pa.date32())}
    return pa.schema([fields[name] for name in COLUMNS])
