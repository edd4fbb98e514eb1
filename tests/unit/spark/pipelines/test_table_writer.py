"""A batch lands what is not in the table yet, no matter which process landed the rest."""

import errno
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.errors import Damaged, DataLoss, Unwritable
from holdfast.spark.pipelines.land.manifest_chain import Chain
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.writer import LandResult, TableWriter, WrittenFile
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.land_harness import TOPIC, ForgetfulNfs, data_files, every, land, rows_of, writing


def lander(table: Path, name: str = "writer", *, fail_on_data_loss: bool = True) -> TableWriter:
    return TableWriter(ManifestStore(table), name, fail_on_data_loss=fail_on_data_loss, max_concurrent=8)


def ranges(*of: tuple[int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(TOPIC, *one) for one in of]


def lands(by: TableWriter, table: Path, *of: tuple[int, int, int]) -> LandResult:
    return by.land(ranges(*of), writing(table, ranges(*of)))


def chain_of(table: Path, partition: int = 0) -> Chain:
    chain = ManifestStore(table).chain((TOPIC, partition))
    assert chain is not None
    return chain


def test_batches_follow_each_other(tmp_path: Path) -> None:
    writer = lander(tmp_path)

    first = lands(writer, tmp_path, (0, 0, 10), (1, 5, 7))
    second = lands(writer, tmp_path, (0, 10, 12), (1, 7, 7))

    assert rows_of(tmp_path) == every((0, 0, 12), (1, 5, 7))
    assert (first.rows, first.files, first.partitions, first.already) == (12, 2, 2, 0)
    assert (second.rows, second.files, second.partitions, second.already) == (2, 1, 1, 0)
    assert (chain_of(tmp_path, 1).first, chain_of(tmp_path, 1).end) == (5, 7)


def test_partitions_wait_for_the_device_together(tmp_path: Path) -> None:
    # given a device on which a file gets its name when another does
    together = threading.Barrier(2, timeout=30)

    class Sociable(Disk):
        def _step(self, what: str, path: Path) -> None:
            if what == "link":
                together.wait()

    writer = TableWriter(ManifestStore(tmp_path, Sociable()), "writer", max_concurrent=2)

    # when
    landed = lands(writer, tmp_path, (0, 0, 10), (1, 5, 7))

    # then
    assert (landed.rows, landed.files, landed.partitions) == (12, 2, 2)
    assert rows_of(tmp_path) == every((0, 0, 10), (1, 5, 7))


def test_a_batch_that_is_repeated_lands_nothing(tmp_path: Path) -> None:
    land(tmp_path, (0, 0, 10))
    there = data_files(tmp_path)

    again = lands(lander(tmp_path), tmp_path, (0, 0, 10))

    assert (again.rows, again.already) == (0, 10)
    assert data_files(tmp_path) == there


def test_a_batch_that_is_in_the_table_in_part_lands_the_rest(tmp_path: Path) -> None:
    land(tmp_path, (0, 0, 10), (1, 0, 10))

    landed = lands(lander(tmp_path), tmp_path, (0, 4, 15), (1, 10, 11))

    assert rows_of(tmp_path) == every((0, 0, 15), (1, 0, 11))
    assert (landed.rows, landed.already) == (6, 6)


def test_a_writer_that_gets_a_partition_back_sees_how_far_the_other_went(tmp_path: Path) -> None:
    one, other = lander(tmp_path, "one"), lander(tmp_path, "other")

    lands(one, tmp_path, (0, 0, 10))
    lands(other, tmp_path, (0, 10, 20))
    back = lands(one, tmp_path, (0, 10, 25))  # its batch was planned before the partition went

    assert rows_of(tmp_path) == every((0, 0, 25))
    assert (back.rows, back.already) == (5, 10)


def test_of_two_writers_at_the_same_offset_one_enters_and_the_other_lands_the_rest(tmp_path: Path) -> None:
    slow, batch = lander(tmp_path, "slow"), ranges((0, 0, 10))
    write = writing(tmp_path, batch)

    def overtaken(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
        files = list(write(floors))
        if floors[TOPIC, 0] == 0:
            land(tmp_path, (0, 0, 7))
        return files

    landed = slow.land(batch, overtaken)

    assert rows_of(tmp_path) == every((0, 0, 10))
    assert (landed.rows, landed.already) == (3, 7)
    assert data_files(tmp_path) == {file.path for file in chain_of(tmp_path).files}, "what lost the race is deleted"


def test_an_entry_whose_answer_was_lost_is_kept_with_its_files(tmp_path: Path) -> None:
    writer = TableWriter(ManifestStore(tmp_path, ForgetfulNfs()), "writer")

    landed = lands(writer, tmp_path, (0, 0, 10))

    assert (landed.rows, landed.already) == (10, 0)
    assert rows_of(tmp_path) == every((0, 0, 10))


def test_writers_that_would_begin_at_different_offsets_agree(tmp_path: Path) -> None:
    late, batch = lander(tmp_path, "late"), ranges((0, 3, 10))
    store = ManifestStore(tmp_path)
    store.begin((TOPIC, 0), 5)

    landed = late.land(batch, writing(tmp_path, batch))

    assert rows_of(tmp_path) == every((0, 5, 10))
    assert (landed.rows, landed.already) == (5, 2)


def test_a_range_without_records_is_entered_too(tmp_path: Path) -> None:
    """Where a transaction ended, or the log was compacted."""
    writer, batch = lander(tmp_path), ranges((0, 0, 10))
    writer.land(batch, writing(tmp_path, batch, without=[0, 5, 9]))
    empty = ranges((0, 10, 12))
    writer.land(empty, writing(tmp_path, empty, without=[10, 11]))
    lands(writer, tmp_path, (0, 12, 13))

    assert [row[2] for row in rows_of(tmp_path)] == [1, 2, 3, 4, 6, 7, 8, 12]
    assert chain_of(tmp_path).end == 13
    assert chain_of(tmp_path).lost == ()


def test_a_gap_is_an_error(tmp_path: Path) -> None:
    land(tmp_path, (0, 0, 10))

    with pytest.raises(DataLoss, match=r"numbers-0 is landed up to 10, and the batch begins at 12: .* offset to 10"):
        lands(lander(tmp_path), tmp_path, (0, 12, 20))

    assert rows_of(tmp_path) == every((0, 0, 10))


def test_a_gap_is_recorded_if_the_user_is_content_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    land(tmp_path, (0, 0, 10))

    with caplog.at_level(logging.WARNING):
        landed = lands(lander(tmp_path, fail_on_data_loss=False), tmp_path, (0, 12, 20))

    assert rows_of(tmp_path) == every((0, 0, 10), (0, 12, 20))
    assert chain_of(tmp_path).lost == ((10, 12),)
    assert landed.lost == ranges((0, 10, 12))
    assert "numbers-0 is landed up to 10, and the batch begins at 12" in caplog.text


def test_records_landed_by_another_writer_meanwhile_are_no_gap(tmp_path: Path) -> None:
    one, other = lander(tmp_path, "one"), lander(tmp_path, "other")
    lands(one, tmp_path, (0, 0, 10))
    lands(other, tmp_path, (0, 10, 20))

    lands(one, tmp_path, (0, 20, 30))

    assert rows_of(tmp_path) == every((0, 0, 30))


def test_a_full_disk_is_one_clear_error_and_the_batch_lands_when_there_is_room(tmp_path: Path) -> None:
    writer, batch = lander(tmp_path), ranges((0, 0, 10), (1, 0, 10))
    write = writing(tmp_path, batch)

    def full(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
        write(floors)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Unwritable, match=r"there is no room left for .*; nothing is lost: ") as reported:
        writer.land(batch, full)
    assert reported.value.retriable
    assert rows_of(tmp_path) == []

    writer.land(batch, write)
    assert rows_of(tmp_path) == every((0, 0, 10), (1, 0, 10))


def test_a_file_that_is_gone_before_it_is_entered_is_not_entered(tmp_path: Path) -> None:
    """Swept, because the batch took longer than the grace time."""
    writer, batch = lander(tmp_path), ranges((0, 0, 10))
    write = writing(tmp_path, batch)

    def swept(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
        files = list(write(floors))
        for _, file in files:
            (tmp_path / file.path).unlink()
        return files

    with pytest.raises(Unwritable, match="No such file"):
        writer.land(batch, swept)

    assert chain_of(tmp_path).end == 0
    writer.land(batch, write)
    assert rows_of(tmp_path) == every((0, 0, 10))


def test_a_file_that_nfs_keeps_because_it_is_still_open_is_no_entry(tmp_path: Path) -> None:
    land(tmp_path, (0, 0, 10))
    (tmp_path / "_manifests" / TOPIC / "0" / "entries" / ".nfs000000000123").write_bytes(b"")

    lands(lander(tmp_path), tmp_path, (0, 10, 20))

    assert rows_of(tmp_path) == every((0, 0, 20))


def test_a_topic_whose_name_begins_with_a_dot_is_in_the_table(tmp_path: Path) -> None:
    hidden = [OffsetRange(".hidden", 0, 0, 3)]

    lander(tmp_path).land(hidden, writing(tmp_path, hidden))

    assert [row[:3] for row in rows_of(tmp_path)] == [(".hidden", 0, 0), (".hidden", 0, 1), (".hidden", 0, 2)]


def test_a_damaged_manifest_is_one_clear_error_and_nothing_is_landed(tmp_path: Path) -> None:
    land(tmp_path, (0, 0, 10))
    last = tmp_path / "_manifests" / TOPIC / "0" / "entries" / f"{0:020d}.json"
    whole = last.read_bytes()
    last.write_bytes(whole[:100])

    with pytest.raises(Damaged, match=r"00000000000000000000\.json is no manifest"):
        lands(lander(tmp_path), tmp_path, (0, 10, 20))

    last.write_bytes(whole)
    lands(lander(tmp_path), tmp_path, (0, 10, 20))
    assert rows_of(tmp_path) == every((0, 0, 20))
