"""A writer dies at every step of its commit, and so does a compaction; any process that comes next lands each offset
once."""

import time
from pathlib import Path

import pytest

from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from tests.unit.spark.pipelines.land_harness import (
    TOPIC,
    Died,
    MortalDisk,
    compaction,
    data_files,
    every,
    land,
    rows_of,
)

BATCH = ((0, 5, 10), (1, 0, 4))
LATER_S = time.time() + 30 * 86_400


def steps_of_a_batch(directory: Path) -> int:
    disk = MortalDisk()
    land(directory, (0, 0, 5))
    land(directory, *BATCH, disk=disk)
    return len(disk.steps)


def test_a_rerun_after_every_crash_point_of_a_commit_lands_every_offset_once(tmp_path: Path) -> None:
    steps = steps_of_a_batch(tmp_path / "whole")
    assert steps > 20, "the control: a batch has many steps"
    seen_after_the_crash = set()
    for number in range(steps):
        # given a table, and a writer that dies in the middle of a batch
        table = tmp_path / str(number)
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
    assert seen_after_the_crash == {5, 10, 14}, "the control: some died before an entry stood, some between, some after"


def test_a_crash_at_every_step_of_a_compaction_changes_no_row(tmp_path: Path) -> None:
    def filled(table: Path) -> None:
        for number in range(2):
            land(table, (0, number * 10, number * 10 + 10), (1, number * 2, number * 2 + 2))

    filled(tmp_path / "whole")
    disk = MortalDisk()
    compaction(tmp_path / "whole", now_s=lambda: LATER_S, disk=disk).run()
    assert len(disk.steps) > 15
    generations = set()
    for number in range(len(disk.steps)):
        table = tmp_path / str(number)
        filled(table)
        with pytest.raises(Died):
            compaction(table, now_s=lambda: LATER_S, disk=MortalDisk(number)).run()
        assert rows_of(table) == every((0, 0, 20), (1, 0, 4)), f"died before step {number}"
        chain = ManifestStore(table).chain((TOPIC, 0))
        assert chain is not None
        generations.add(chain.generation)
        land(table, (0, 20, 22))
        compaction(table, now_s=lambda: LATER_S + 10_000_000).run()
        assert rows_of(table) == every((0, 0, 22), (1, 0, 4))
    assert generations == {0, 1}, "the control: some died before the snapshot, some behind it"


def test_what_crashes_leave_behind_is_swept_when_it_is_old(tmp_path: Path) -> None:
    # given what a writer left that died with its files written, and before its entry had its name
    disk = MortalDisk()
    land(tmp_path / "whole", (0, 0, 5), disk=disk)
    link = max(at for at, (what, _) in enumerate(disk.steps) if what == "link")
    table = tmp_path / "lake"
    with pytest.raises(Died):
        land(table, (0, 0, 5), disk=MortalDisk(link))
    land(table, (0, 0, 5))
    assert len(data_files(table)) == 2
    assert len(list(table.rglob(f"{UNFINISHED}*"))) == 1

    # when it is still young, and when it is not
    compaction(table, now_s=lambda: (table / "_manifests").stat().st_mtime + 10).run()
    assert len(data_files(table)) == 2, "the control"
    swept = compaction(table, now_s=lambda: LATER_S).run()

    # then
    assert swept.swept_files == 2
    assert len(data_files(table)) == 1
    assert list(table.rglob(f"{UNFINISHED}*")) == []
    assert rows_of(table) == every((0, 0, 5))
