"""A writer dies at every step of its commit, and so does a compaction; any process that comes next lands each offset
once."""

import time
from pathlib import Path

import pytest

from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.land.delta_entry import LOG
from holdfast.spark.pipelines.location import Location
from tests.unit.spark.pipelines.land_harness import (
    Died,
    MortalDisk,
    compaction,
    data_files,
    every,
    land,
    listed_files,
    rows_of,
)

BATCH = ((0, 5, 10), (1, 0, 4))
LATER_S = time.time() + 30 * 86_400
YEARS_S = 1e9


def table_at(path: Path) -> Location:
    return Location.parse(path)


def steps_of_a_batch(table: Location) -> list[tuple[str, str]]:
    disk = MortalDisk()
    land(table, (0, 0, 5))
    land(table, *BATCH, disk=disk)
    return disk.steps


def test_a_rerun_after_every_crash_point_of_a_commit_lands_every_offset_once(tmp_path: Path) -> None:
    steps = len(steps_of_a_batch(table_at(tmp_path / "whole")))
    assert steps > 8, "the control: a batch has many steps"
    seen_after_the_crash = set()
    for number in range(steps):
        # given a table, and a writer that dies in the middle of a batch
        table = table_at(tmp_path / str(number))
        land(table, (0, 0, 5))
        with pytest.raises(Died):
            land(table, *BATCH, disk=MortalDisk(number))
        before = rows_of(table)
        assert len(before) == len(set(before))
        seen_after_the_crash.add(len(before))
        # when another repeats the batch, or has planned more of it
        if number % 2:
            land(table, *BATCH)
        land(table, (0, 5, 12), (1, 0, 4))
        # then
        assert rows_of(table) == every((0, 0, 12), (1, 0, 4)), f"died before step {number}"
    assert seen_after_the_crash == {5, 14}, "the control: some died before the entry existed, and some after that"


def test_files_and_their_names_are_durable_before_the_entry_exists(tmp_path: Path) -> None:
    steps = [what for what, _ in steps_of_a_batch(table_at(tmp_path / "lake"))]

    link = steps.index("link")
    assert "sync directory" in steps[:link], "the names of the files"
    assert steps[link - 2 : link] == ["write", "sync"], "the content of the entry"
    assert "sync directory" in steps[link:], "the name of the entry, before the batch is reported as landed"


def filled(table: Location) -> None:
    for number in range(2):
        land(table, (0, number * 10, number * 10 + 10), (1, number * 2, number * 2 + 2))


def test_a_crash_at_every_step_of_a_compaction_changes_no_row(tmp_path: Path) -> None:
    whole = table_at(tmp_path / "whole")
    filled(whole)
    disk = MortalDisk()
    compaction(whole, now_s=lambda: LATER_S, grace_s=YEARS_S, disk=disk).run()
    assert len(disk.steps) > 5
    files = set()
    for number in range(len(disk.steps)):
        table = table_at(tmp_path / str(number))
        filled(table)
        with pytest.raises(Died):
            compaction(table, now_s=lambda: LATER_S, grace_s=YEARS_S, disk=MortalDisk(number)).run()
        assert rows_of(table) == every((0, 0, 20), (1, 0, 4)), f"died before step {number}"
        files.add(len(listed_files(table)))
        land(table, (0, 20, 22))
        compaction(table, now_s=lambda: LATER_S, grace_s=YEARS_S).run()
        assert rows_of(table) == every((0, 0, 22), (1, 0, 4))
    assert files == {4, 2}, "the control: some died before the exchange, and some after it"


def test_files_that_crashes_leave_behind_are_deleted_when_they_are_old(tmp_path: Path) -> None:
    # given a writer that died with its files written, and before its entry had its name
    steps = MortalDisk()
    land(table_at(tmp_path / "whole"), (0, 0, 5), disk=steps)
    link = max(at for at, (what, _) in enumerate(steps.steps) if what == "link")
    table = table_at(tmp_path / "lake")
    with pytest.raises(Died):
        land(table, (0, 0, 5), disk=MortalDisk(link))
    land(table, (0, 0, 5))
    assert len(data_files(table)) == 2
    assert len(list((table.path / LOG).glob(f"{UNFINISHED}*"))) == 1

    # when they are still young, and when they are not
    young = compaction(table, now_s=time.time, grace_s=3600).run()
    assert (young.deleted_files, len(data_files(table))) == (0, 2), "the control"
    done = compaction(table, now_s=lambda: LATER_S, grace_s=0).run()

    # then
    assert done.deleted_files == 2
    assert data_files(table) == listed_files(table)
    assert list((table.path / LOG).glob(f"{UNFINISHED}*")) == []
    assert rows_of(table) == every((0, 0, 5))
