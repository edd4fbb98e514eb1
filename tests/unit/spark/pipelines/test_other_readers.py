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
from deltalake import Field, write_deltalake
from deltalake.schema import PrimitiveType

from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_table import write_checkpoint
from holdfast.spark.pipelines.land.parquet_writer import write_rows
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import (
    A_DATE_MS,
    DAY_MS,
    compaction,
    land,
    new_writer,
    opened,
    record_batch,
    value_of,
    written,
)
from tests.unit.spark.pipelines.land_harness import TOPIC as NUMBERS

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


def test_polars_reads_a_compacted_table_with_a_column_of_another_program(tmp_path: Path) -> None:
    """Some of the merged files have the column, and some do not."""
    # given a table with a new column, and rows of the program that has added it
    location = Location.parse(tmp_path / "lake")
    land(location, (0, 0, 5))
    opened(location).alter.add_columns([Field("checked", PrimitiveType("boolean"))])
    theirs = record_batch([(OffsetRange(NUMBERS, 0, 1000, 1002), A_DATE_MS)])
    rows = pa.Table.from_batches([theirs]).append_column("checked", pa.array([True, None]))
    day = pa.array([date(2026, 11, 16)] * 2)
    write_deltalake(location.url, rows.append_column("date", day), mode="append", schema_mode="merge")
    land(location, (0, 5, 10))

    # when
    done = compaction(location, now_s=lambda: A_DATE_MS / 1000 + 10 * 86_400, grace_s=0).run()
    land(location, (0, 10, 12))

    # then
    assert (done.merged_files, done.into_files) == (3, 1)
    read = pl.read_delta(location.url).sort("offset")
    assert read["offset"].to_list() == [*range(12), 1000, 1001]
    assert read["checked"].to_list() == [*[None] * 12, True, None]
    assert read["value"].to_list() == [value_of((NUMBERS, 0), offset) for offset in read["offset"]]


def test_a_filter_at_the_highest_timestamp_of_a_file_keeps_its_row(table: Location) -> None:
    """The statistics have milliseconds. A reader must not skip the file whose maximum is the time itself."""
    dataset = opened(table).to_pyarrow_dataset()
    highest = pc.max(dataset.to_table().column("timestamp")).as_py()
    lazy = pl.scan_delta(table.url, storage_options=dict(table.storage_options) or None)

    for by_arrow, by_polars, rows in (
        (pc.field("timestamp") >= highest, pl.col("timestamp") >= highest, 2),
        (pc.field("timestamp") == highest, pl.col("timestamp") == highest, 2),
        (pc.field("timestamp") > highest, pl.col("timestamp") > highest, 0),
    ):
        assert dataset.to_table(filter=by_arrow).num_rows == rows
        assert lazy.filter(by_polars).collect().height == rows
    assert len(list(dataset.get_fragments(filter=pc.field("timestamp") >= highest))) == 2, "of six files"


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
