"""What a task writes: a file for each topic, partition and date, with the rows from the floor on."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from holdfast.client.errors import RequestTimedOut
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.errors import DataLoss
from holdfast.spark.pipelines.land import parquet_merge, parquet_writer
from holdfast.spark.pipelines.land.parquet_writer import split, write_rows
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import A_DATE_MS, DAY_MS, data_files, record_batch, written

A, B = OffsetRange("a", 0, 5, 8), OffsetRange("b", 1, 0, 2)


def test_rows_of_one_kind_are_passed_on_as_they_are() -> None:
    batch = record_batch([(A, A_DATE_MS)])

    ((key, rows),) = split(batch)

    assert key == ("a", 0, A_DATE_MS // DAY_MS)
    assert rows is batch


def test_rows_are_split_by_topic_partition_and_date() -> None:
    other = OffsetRange("a", 3, 100, 101)
    batch = record_batch([(A, A_DATE_MS), (B, A_DATE_MS), (other, A_DATE_MS + DAY_MS - 1), (B, A_DATE_MS + DAY_MS)])

    parts = {key: rows.column("offset").to_pylist() for key, rows in split(batch)}

    today = A_DATE_MS // DAY_MS
    assert parts == {
        ("a", 0, today): [5, 6, 7],
        ("a", 3, today): [100],
        ("b", 1, today): [0, 1],
        ("b", 1, today + 1): [0, 1],
    }
    assert split(batch.slice(0, 0)) == []


def test_a_record_without_a_time_has_a_date_too() -> None:
    ((key, _),) = split(record_batch([(A, -1)]))

    assert key == ("a", 0, -1)


@pytest.mark.parametrize(
    ("at_ms", "day"),
    [
        (253_402_300_799_999, "9999-12-31"),
        (253_402_300_800_000, "9999-12-31"),
        (1_790_000_000_000_000, "9999-12-31"),  # microseconds, where milliseconds belong
        (-62_135_596_800_000, "0001-01-01"),
        (-62_135_596_800_001, "0001-01-01"),
    ],
)
def test_a_record_of_a_time_that_no_date_can_name_is_filed_under_the_nearest(
    tmp_path: Path, at_ms: int, day: str
) -> None:
    batches = [record_batch([(A, at_ms), (B, A_DATE_MS)])]

    files = {one.where: one for one in written(write_rows(batches, Location.parse(tmp_path)))}

    assert (files[A.where].date, files[A.where].rows) == (day, 3)
    assert files[B.where].date == "2026-11-16"
    read = pq.ParquetFile(tmp_path / files[A.where].path).read()
    assert read.column("timestamp").cast(pa.int64()).to_pylist() == [at_ms * 1000] * 3, "the time itself stays"


def test_each_file_holds_what_is_reported_of_it(tmp_path: Path) -> None:
    batches = [record_batch([(A, A_DATE_MS)]), record_batch([(A._replace(start=8, end=9), A_DATE_MS), (B, -1)])]

    files = {one.where: one for one in written(write_rows(batches, Location.parse(tmp_path)))}

    of_a, of_b = files[A.where], files[B.where]
    assert of_a.path.startswith("topic=a/date=2026-11-16/0-00000000000000000005-")
    assert of_b.path.startswith("topic=b/date=1969-12-31/1-00000000000000000000-")
    assert (of_a.first, of_a.end, of_a.rows, of_a.date) == (5, 9, 4, "2026-11-16")
    assert of_a.size_bytes == (tmp_path / of_a.path).stat().st_size
    read = pq.ParquetFile(tmp_path / of_a.path)
    assert read.schema_arrow.names == ["key", "value", "partition", "offset", "timestamp", "timestampType"]
    assert read.num_row_groups == 1
    assert read.read().column("timestamp").cast(pa.int64()).to_pylist() == [A_DATE_MS * 1000] * 4


def test_large_rows_become_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_BYTES", 1)
    batches = [record_batch([(A._replace(start=at, end=at + 2), A_DATE_MS)]) for at in (0, 2, 4)]

    (one,) = written(write_rows(batches, Location.parse(tmp_path)))

    read = pq.ParquetFile(tmp_path / one.path)
    assert read.num_row_groups == 3
    assert read.read().column("offset").to_pylist() == [0, 1, 2, 3, 4, 5]


class Cancelled(BaseException):
    """Not an Exception, like KeyboardInterrupt."""


@pytest.mark.parametrize("failure", [DataLoss("orders-0: gone"), RequestTimedOut("late"), KeyError("x"), Cancelled()])
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_an_error_of_the_reading_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    store: str,
    failure: BaseException,
) -> None:
    # given a task that has two files open
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    there: list[set[Path]] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield record_batch([(A, A_DATE_MS), (B, A_DATE_MS)])
        there.append(set(tmp_path.rglob("*.parquet")))
        raise failure

    # when reading more fails, then the error is that of the reading
    with pytest.raises(type(failure)) as raised:
        list(write_rows(rows(), location_in(store, tmp_path, request)))
    assert raised.value is failure
    assert len(there[0]) == 2, "the control"
    assert list(tmp_path.rglob("*.parquet")) == []


def location_in(store: str, directory: Path, request: pytest.FixtureRequest) -> Location:
    if store == "disk":
        return Location.parse(directory / "lake")
    s3: S3Emulator = request.getfixturevalue("s3")
    return Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)


@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_merge_that_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, store: str
) -> None:
    location = location_in(store, tmp_path, request)
    files = list(written(write_rows([record_batch([(A, A_DATE_MS), (B, A_DATE_MS)])], location)))
    left = set(tmp_path.rglob("*.parquet"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(*_: object) -> None:
        raise Cancelled

    monkeypatch.setattr(parquet_merge, "_write", fail)
    with pytest.raises(Cancelled):
        parquet_merge.merge_files(TableFiles(location), files)

    assert set(tmp_path.rglob("*.parquet")) == left


def test_a_file_that_cannot_be_opened_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Emulator
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(_path: Path) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(parquet_writer, "open_sink", fail)
    location = Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)

    (report,) = write_rows([record_batch([(A, A_DATE_MS)])], location)

    assert report.to_pylist()[0]["problem"] == "Too many open files"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> pa.OSFile:
        path.symlink_to("/dev/full")  # a device that never has room
        return pa.OSFile(str(path), "wb")

    monkeypatch.setattr(parquet_writer, "open_sink", full)
    left = iter([record_batch([(A, A_DATE_MS)]), record_batch([(B, A_DATE_MS)])])

    (report,) = write_rows(left, Location.parse(tmp_path))

    (row,) = report.to_pylist()
    assert "No space left on device" in row["problem"]
    assert row["errno"] == 28
    assert data_files(Location.parse(tmp_path)) == set()
