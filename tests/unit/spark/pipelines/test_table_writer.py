"""A batch lands what is not in the table yet, no matter which process landed the rest."""

import errno
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.errors import Damaged, DataLoss, Unwritable
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import entry_name
from holdfast.spark.pipelines.land.writer import LandResult, TableWriter
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import LocalFiles, open_files
from holdfast.types import TopicPartition
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import (
    TOPIC,
    data_files,
    end_of,
    every,
    land,
    listed_files,
    new_writer,
    opened,
    rows_of,
    writing,
)
from tests.unit.spark.pipelines.places import ForgetfulNfs


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return Location.parse(tmp_path / "lake")
    s3: S3Emulator = request.getfixturevalue("s3")
    return Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)


@pytest.fixture
def on_disk(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "lake")


def ranges(*of: tuple[int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(TOPIC, *one) for one in of]


def lands(by: TableWriter, table: Location, *of: tuple[int, int, int]) -> LandResult:
    return by.land(ranges(*of), writing(table))


def test_batches_follow_each_other(table: Location) -> None:
    writer = new_writer(table)

    first = lands(writer, table, (0, 0, 10), (1, 5, 7))
    second = lands(writer, table, (0, 10, 12), (1, 7, 7))

    assert rows_of(table) == every((0, 0, 12), (1, 5, 7))
    assert (first.rows, first.files, first.partitions, first.already) == (12, 2, 2, 0)
    assert (second.rows, second.files, second.partitions, second.already) == (2, 1, 1, 0)
    assert (end_of(table, 0), end_of(table, 1)) == (12, 7)
    assert opened(table).version() == 2, "a batch is one entry of the log"


def test_a_batch_that_is_repeated_lands_nothing(table: Location) -> None:
    land(table, (0, 0, 10))
    there = data_files(table)

    again = lands(new_writer(table), table, (0, 0, 10))

    assert (again.rows, again.already) == (0, 10)
    assert data_files(table) == there


def test_a_batch_that_is_in_the_table_in_part_lands_the_rest(table: Location) -> None:
    land(table, (0, 0, 10), (1, 0, 10))

    landed = lands(new_writer(table), table, (0, 4, 15), (1, 10, 11))

    assert rows_of(table) == every((0, 0, 15), (1, 0, 11))
    assert (landed.rows, landed.already) == (6, 6)


def test_a_writer_that_gets_a_partition_back_sees_how_far_the_other_went(table: Location) -> None:
    one, other = new_writer(table, name="one"), new_writer(table, name="other")

    lands(one, table, (0, 0, 10))
    lands(other, table, (0, 10, 20))
    back = lands(one, table, (0, 10, 25))  # its batch was planned before the partition went

    assert rows_of(table) == every((0, 0, 25))
    assert (back.rows, back.already) == (5, 10)


def test_of_two_writers_at_the_same_offset_one_enters_and_the_other_lands_the_rest(table: Location) -> None:
    slow, batch = new_writer(table, name="slow"), ranges((0, 0, 10))
    write = writing(table)

    def overtaken(wanted: Sequence[OffsetRange]) -> list[DataFile]:
        files = list(write(wanted))
        if wanted[0].start == 0:
            land(table, (0, 0, 7))
        return files

    landed = slow.land(batch, overtaken)

    assert rows_of(table) == every((0, 0, 10))
    assert (landed.rows, landed.already) == (3, 7)
    assert landed.conflicts == 1
    assert data_files(table) == listed_files(table), "what lost the race is deleted"


def test_an_entry_whose_response_was_lost_is_kept_with_its_files(on_disk: Location) -> None:
    landed = lands(new_writer(on_disk, LocalFiles(on_disk.path, ForgetfulNfs())), on_disk, (0, 0, 10))

    assert (landed.rows, landed.already) == (10, 0)
    assert rows_of(on_disk) == every((0, 0, 10))


def test_a_range_without_records_is_entered_too(table: Location) -> None:
    """Where a transaction ended, or the log was compacted."""
    writer, batch = new_writer(table), ranges((0, 0, 10))
    writer.land(batch, writing(table, without=[0, 5, 9]))
    empty = ranges((0, 10, 12))
    writer.land(empty, writing(table, without=[10, 11]))
    lands(writer, table, (0, 12, 13))

    assert [row[2] for row in rows_of(table)] == [1, 2, 3, 4, 6, 7, 8, 12]
    assert end_of(table) == 13


def test_a_gap_is_an_error(table: Location) -> None:
    land(table, (0, 0, 10))

    with pytest.raises(DataLoss, match=r"numbers-0 is landed up to 10, and the batch begins at 12: .* offset to 10"):
        lands(new_writer(table), table, (0, 12, 20))

    assert rows_of(table) == every((0, 0, 10))


def test_a_gap_is_recorded_if_the_user_is_content_with_it(table: Location, caplog: pytest.LogCaptureFixture) -> None:
    land(table, (0, 0, 10))

    with caplog.at_level(logging.WARNING):
        landed = lands(new_writer(table, fail_on_data_loss=False), table, (0, 12, 20))

    assert rows_of(table) == every((0, 0, 10), (0, 12, 20))
    assert opened(table).history(1)[0]["lost"] == [[TOPIC, 0, 10, 12]]
    assert landed.lost == ranges((0, 10, 12))
    assert "numbers-0 is landed up to 10, and the batch begins at 12" in caplog.text


def test_records_landed_by_another_writer_meanwhile_are_no_gap(table: Location) -> None:
    one, other = new_writer(table, name="one"), new_writer(table, name="other")
    lands(one, table, (0, 0, 10))
    lands(other, table, (0, 10, 20))

    lands(one, table, (0, 20, 30))

    assert rows_of(table) == every((0, 0, 30))


def test_a_full_disk_is_one_clear_error_and_the_batch_lands_when_there_is_room(table: Location) -> None:
    writer, batch = new_writer(table), ranges((0, 0, 10), (1, 0, 10))
    write = writing(table)

    def full(wanted: Sequence[OffsetRange]) -> list[DataFile]:
        write(wanted)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Unwritable, match=r"there is no room left for .*; nothing is lost: ") as reported:
        writer.land(batch, full)
    assert reported.value.retriable
    assert rows_of(table) == []

    writer.land(batch, write)
    assert rows_of(table) == every((0, 0, 10), (1, 0, 10))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_file_that_is_gone_before_its_commit_is_not_committed(table: Location, partitions: int) -> None:
    """Deleted by a compaction, because the batch took longer than the grace time."""
    whole = [(at, 0, 10) for at in range(partitions)]
    writer, batch = new_writer(table), ranges(*whole)
    write = writing(table)

    def deleted(wanted: Sequence[OffsetRange]) -> list[DataFile]:
        files = list(write(wanted))
        open_files(table).remove(files[-1].path)
        return files

    with pytest.raises(Unwritable, match=r"parquet was deleted before its commit.*; nothing is lost"):
        writer.land(batch, deleted)

    assert end_of(table) is None
    writer.land(batch, write)
    assert rows_of(table) == every(*whole)


def test_a_topic_whose_name_begins_with_a_dot_is_in_the_table(table: Location) -> None:
    hidden = [OffsetRange(".hidden", 0, 0, 3)]

    new_writer(table).land(hidden, writing(table))

    assert [row[:3] for row in rows_of(table)] == [(".hidden", 0, 0), (".hidden", 0, 1), (".hidden", 0, 2)]


def test_after_a_conflict_only_the_partitions_that_clashed_are_written_again(table: Location) -> None:
    writer, batch = new_writer(table, name="slow"), ranges((0, 0, 10), (1, 0, 10), (2, 0, 10))
    write = writing(table)
    written: list[dict[TopicPartition, int]] = []

    def overtaken(wanted: Sequence[OffsetRange]) -> list[DataFile]:
        files = list(write(wanted))
        if not written:
            land(table, (1, 0, 4))
        written.append({one.where: one.start for one in wanted})
        return files

    landed = writer.land(batch, overtaken)

    assert written == [{(TOPIC, at): 0 for at in range(3)}, {(TOPIC, 1): 4}]
    assert (landed.rows, landed.already, landed.conflicts) == (26, 4, 1)
    assert rows_of(table) == every(*[(at, 0, 10) for at in range(3)])
    assert data_files(table) == listed_files(table)


def test_writers_of_different_partitions_do_not_write_again(table: Location) -> None:
    writer, batch = new_writer(table, name="slow"), ranges((0, 0, 10))
    write, calls = writing(table), []

    def overtaken(wanted: Sequence[OffsetRange]) -> list[DataFile]:
        files = list(write(wanted))
        land(table, (1, 0, 4))
        calls.append(wanted)
        return files

    landed = writer.land(batch, overtaken)

    assert (len(calls), landed.rows, landed.already, landed.conflicts) == (1, 10, 0, 1)
    assert rows_of(table) == every((0, 0, 10), (1, 0, 4))


def test_a_zombie_cannot_set_the_end_of_a_partition_back(table: Location) -> None:
    zombie = new_writer(table, name="zombie")
    lands(zombie, table, (0, 0, 10))
    lands(new_writer(table), table, (0, 10, 30))

    landed = lands(zombie, table, (0, 10, 20))

    assert (landed.rows, landed.already) == (0, 10)
    assert (end_of(table), rows_of(table)) == (30, every((0, 0, 30)))


def test_a_damaged_entry_is_one_clear_error_and_nothing_is_landed(on_disk: Location) -> None:
    one, other = new_writer(on_disk, name="one"), new_writer(on_disk, name="other")
    lands(one, on_disk, (0, 0, 10))
    lands(other, on_disk, (0, 10, 20))
    entry = on_disk.path / entry_name(2)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:100])

    with pytest.raises(Damaged, match=r"00000000000000000002\.json is no entry of a Delta log"):
        lands(one, on_disk, (0, 20, 30))
    with pytest.raises(Unwritable, match="lake"):
        lands(new_writer(on_disk), on_disk, (0, 20, 30))

    entry.write_bytes(whole)
    lands(new_writer(on_disk), on_disk, (0, 20, 30))
    assert rows_of(on_disk) == every((0, 0, 30))


def test_another_programs_new_column_is_no_obstacle(table: Location) -> None:
    writer = new_writer(table)
    lands(writer, table, (0, 0, 10))
    opened(table).alter.add_columns([Field("checked", PrimitiveType("boolean"))])

    lands(writer, table, (0, 10, 20))
    lands(new_writer(table), table, (0, 20, 30))

    assert rows_of(table) == every((0, 0, 30))
    assert "checked" in opened(table).to_pyarrow_table().column_names


def test_a_table_with_other_columns_is_refused(on_disk: Location) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(on_disk.url, pa.table({"topic": ["a"], "date": ["b"], "n": [1]}), partition_by=["topic", "date"])
    with pytest.raises(ConfigError, match="has no column 'key'"):
        land(on_disk, (0, 0, 10))


def test_a_feature_that_appears_later_stops_a_writer_before_it_writes(on_disk: Location) -> None:
    writer = new_writer(on_disk)
    lands(writer, on_disk, (0, 0, 10))
    version = opened(on_disk).version() + 1
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    (on_disk.path / entry_name(version)).write_text(json.dumps({"protocol": protocol}) + "\n")

    with pytest.raises(ConfigError, match=r"features that Holdfast does not support \(rowTracking\)"):
        lands(writer, on_disk, (0, 10, 20))

    assert DeltaTable(on_disk.url).version() == version


def test_a_table_of_manifests_is_refused(on_disk: Location) -> None:
    (on_disk.path / "_manifests" / "orders").mkdir(parents=True)

    with pytest.raises(ConfigError, match="with manifests instead of a Delta log"):
        land(on_disk, (0, 0, 10))
