"""Small files become larger ones; no reader sees a row twice or misses one, and writers continue meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from holdfast.client.errors import ConfigError
from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.parquet_merge import merge_files
from holdfast.spark.pipelines.land.parquet_writer import write_rows
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge, merges_of
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import (
    A_DATE_MS,
    DAY_MS,
    TOPIC,
    compaction,
    data_files,
    end_of,
    every,
    land,
    listed_files,
    new_writer,
    opened,
    record_batch,
    rows_of,
    writing,
    written,
)

OLD_MS = A_DATE_MS - 20 * DAY_MS
HOUR_S = 3600.0


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return Location.parse(tmp_path / "lake")
    s3: S3Emulator = request.getfixturevalue("s3")
    return Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)


@pytest.fixture
def on_disk(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "lake")


def filled(table: Location, batches: int = 4) -> None:
    writer = new_writer(table)
    for number in range(batches):
        wanted = [OffsetRange(TOPIC, 0, number * 5, number * 5 + 5)]
        writer.land(wanted, writing(table, OLD_MS))


def last_entry(table: Location, operation: str) -> list[dict[str, dict[str, object]]]:
    """The actions of the last entry with this operation."""
    version = next(one["version"] for one in opened(table).history() if one["operation"] == operation)
    return [json.loads(line) for line in (table.path / entry_name(version)).read_text().splitlines()]


def test_the_small_files_of_a_closed_date_become_one_in_offset_order(table: Location) -> None:
    filled(table)

    done = compaction(table, now_s=time.time).run()

    assert rows_of(table) == every((0, 0, 20))
    assert (done.merged_files, done.into_files, done.commits, done.deleted_files) == (4, 1, 1, 0)
    assert len(listed_files(table)) == 1
    assert opened(table).to_pyarrow_table().column("offset").to_pylist() == list(range(20))
    (file,) = pa.table(opened(table).get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.offset"], file["max.offset"], file["min.partition"]) == (20, 0, 19, 0)


def test_an_exchange_says_that_it_changes_no_data(on_disk: Location) -> None:
    """A stream that reads the table would read the records again otherwise."""
    filled(on_disk)

    compaction(on_disk, now_s=time.time).run()

    actions = [(kind, action) for line in last_entry(on_disk, "OPTIMIZE") for kind, action in line.items()]
    assert [kind for kind, _ in actions] == ["commitInfo", *["remove"] * 4, "add"]
    assert [action["dataChange"] for _, action in actions[1:]] == [False] * 5
    batch = [action for line in last_entry(on_disk, "WRITE") for kind, action in line.items() if kind == "add"]
    assert [action["dataChange"] for action in batch] == [True], "the control"


def test_files_of_an_open_date_stay_as_they_are(table: Location) -> None:
    filled(table)
    files = listed_files(table)
    day = next(iter(files)).split("/")[1].removeprefix("date=")

    done = Compaction(table, _no_merge, before=date.fromisoformat(day)).run()

    assert listed_files(table) == files
    assert (done.merged_files, done.commits) == (0, 0)


def _no_merge(merges: Sequence[Merge]) -> list[DataFile]:
    raise AssertionError(f"nothing to merge: {merges}")


def test_landing_continues_after_a_compaction_and_the_next_one_includes_it(table: Location) -> None:
    filled(table)
    compaction(table, now_s=time.time).run()
    land(table, (0, 18, 25), at_ms=OLD_MS)
    assert rows_of(table) == every((0, 0, 25))

    done = compaction(table, now_s=time.time).run()

    assert rows_of(table) == every((0, 0, 25))
    assert (done.merged_files, done.into_files, len(listed_files(table))) == (2, 1, 1)


def test_a_compaction_with_nothing_to_merge_commits_no_exchange(table: Location) -> None:
    filled(table)
    compaction(table, now_s=time.time).run()

    again = compaction(table, now_s=time.time).run()

    assert (again.commits, again.merged_files) == (0, 0)


def test_replaced_files_stay_for_the_grace_period(table: Location) -> None:
    filled(table)
    old = data_files(table)

    compaction(table, now_s=time.time, grace_s=HOUR_S).run()
    assert old < data_files(table), "a query may be reading them"
    done = compaction(table, now_s=time.time, grace_s=0).run()

    assert done.deleted_files == 4
    assert data_files(table) == listed_files(table)
    assert rows_of(table) == every((0, 0, 20))


def test_a_file_that_is_large_enough_stays_and_merges_keep_to_the_target() -> None:
    def file(name: str, partition: int, day: str, first: int, size_bytes: int) -> DataFile:
        return DataFile(name, "t", partition, day, first, first + 1, 1, size_bytes, 0, 0)

    sizes = [60, 10, 10, 25, 30, 45, 5]
    files = [file(f"topic=t/{at}", 0, "2020-01-01", at, size) for at, size in enumerate(sizes)]
    others = [file("topic=t/x", 0, "2020-01-02", 7, 1), file("topic=t/y", 0, "2020-01-03", 8, 1)]
    other_partition = [file("topic=t/z", 1, "2020-01-01", 7, 1)]

    merges = merges_of([*others, *reversed(files), *other_partition], "2020-01-03", 100)

    assert [[file.size_bytes for file in merge.files] for merge in merges] == [[10, 10, 25, 30], [45, 5]]


def test_headers_stay_where_some_files_have_none(on_disk: Location) -> None:
    plain = record_batch([(OffsetRange(TOPIC, 0, 0, 2), OLD_MS)])
    headers = pa.array([[{"key": "from", "value": b"shop"}]] * 2, arrow.schema(True).field("headers").type)
    later = record_batch([(OffsetRange(TOPIC, 0, 2, 4), OLD_MS)]).append_column("headers", headers)
    files = [one for batch in (plain, later) for one in written(write_rows([batch], on_disk))]

    merged = merge_files(TableFiles(on_disk), files)

    read = pq.read_table(on_disk.path / merged.path, partitioning=None)
    assert read.column("headers").to_pylist() == [None, None, *headers.to_pylist()]
    assert read.column("offset").to_pylist() == [0, 1, 2, 3]


def test_a_writer_that_commits_after_a_compaction_lands_only_the_rest(table: Location) -> None:
    batch = [OffsetRange(TOPIC, 0, 0, 12)]
    write = writing(table, OLD_MS)

    def slow(ranges: Sequence[OffsetRange]) -> list[DataFile]:
        files = list(write(ranges))
        if ranges[0].start == 0:
            land(table, (0, 0, 5), at_ms=OLD_MS)
            land(table, (0, 5, 10), at_ms=OLD_MS)
            compaction(table, now_s=time.time).run()
        return files

    new_writer(table, name="slow").land(batch, slow)

    assert rows_of(table) == every((0, 0, 12))
    assert len(listed_files(table)) == 2


def test_a_merged_file_that_is_gone_before_its_commit_is_not_committed(table: Location) -> None:
    """Deleted by another compaction, because merging took longer than the grace time."""
    filled(table)
    files = TableFiles(table)

    def deleted(merges: Sequence[Merge]) -> list[DataFile]:
        merged = [merge_files(files, merge.files) for merge in merges]
        files.remove(merged[0].path)
        return merged

    with pytest.raises(FileNotFoundError, match="was deleted before its commit"):
        Compaction(table, deleted).run()

    assert rows_of(table) == every((0, 0, 20))


class IgnoresRemovedFiles(DeltaLog):
    """Does not see which files another compaction has replaced."""

    def refresh(self) -> None:
        super().refresh()
        self.removed = set()


@pytest.mark.parametrize("log", [DeltaLog, IgnoresRemovedFiles])
def test_of_two_compactions_at_once_one_replaces_the_files(table: Location, log: type[DeltaLog]) -> None:
    filled(table)
    files = TableFiles(table)

    def slow(merges: Sequence[Merge]) -> list[DataFile]:
        land(table, (0, 20, 25), at_ms=OLD_MS)
        compaction(table, now_s=time.time).run()
        return [merge_files(files, merge.files) for merge in merges]

    overtaken = Compaction(table, slow)
    overtaken._log = log(table)
    done = overtaken.run()

    if log is DeltaLog:
        assert (done.commits, rows_of(table)) == (0, every((0, 0, 25)))
    else:
        assert len(rows_of(table)) > 25, "the control"


def test_a_table_with_deletion_vectors_is_left_to_the_program_that_has_enabled_them(on_disk: Location) -> None:
    filled(on_disk)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    number = opened(on_disk).version() + 1
    (on_disk.path / entry_name(number)).write_text(json.dumps({"protocol": protocol}) + "\n")

    with pytest.raises(ConfigError, match=r"compact the table with that program \(OPTIMIZE\)"):
        compaction(on_disk, now_s=time.time).run()

    land(on_disk, (0, 20, 25))
    assert end_of(on_disk) == 25, "but it can be landed into"


def test_an_unknown_topic_or_table_is_one_clear_error(on_disk: Location) -> None:
    with pytest.raises(ConfigError, match="there is no Delta table"):
        compaction(on_disk, now_s=time.time).run()
    filled(on_disk)
    with pytest.raises(ConfigError, match="has no topic 'orders'; it has numbers"):
        compaction(on_disk, now_s=time.time).run(["orders"])
