"""A writer dies at every step of its commit, and so does a compaction; any process that comes next lands each offset
once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.land.delta_entry import LOG
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import compaction, data_files, every, land, listed_files, rows_of
from tests.unit.spark.pipelines.places import Died, DiskPlace, Mortal, Place, s3_place

BATCH = ((0, 5, 10), (1, 0, 4))
LATER_S = time.time() + 30 * 86_400
YEARS_S = 1e9

MakePlace = Callable[[str], Place]
"""A new place by this name."""


@pytest.fixture(params=["disk", "s3"])
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> MakePlace:
    if request.param == "disk":
        return lambda name: DiskPlace(tmp_path / name)
    s3: S3Emulator = request.getfixturevalue("s3")
    return lambda _name: s3_place(s3)


def mortal(place: Place, steps: Mortal) -> SharedFiles:
    """In S3 a commit is one change, so deaths before the reads that follow are those after it."""
    return place.files(steps, with_reads=not place.location.is_local)


def steps_of_a_batch(place: Place) -> list[tuple[str, str]]:
    steps = Mortal()
    land(place.location, (0, 0, 5))
    land(place.location, *BATCH, files=mortal(place, steps))
    return steps.steps


def test_a_rerun_after_every_crash_point_of_a_commit_lands_every_offset_once(make_place: MakePlace) -> None:
    steps = len(steps_of_a_batch(make_place("whole")))
    assert steps >= 5, "the control: a batch has many steps"
    seen_after_the_crash = set()
    for number in range(steps):
        # given a table, and a writer that dies in the middle of a batch
        place = make_place(str(number))
        table = place.location
        land(table, (0, 0, 5))
        with pytest.raises(Died):
            land(table, *BATCH, files=mortal(place, Mortal(number)))
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
    steps = [what for what, _ in steps_of_a_batch(DiskPlace(tmp_path / "lake"))]

    link = steps.index("link")
    assert "sync directory" in steps[:link], "the names of the files"
    assert steps[link - 2 : link] == ["write", "sync"], "the content of the entry"
    assert "sync directory" in steps[link:], "the name of the entry, before the batch is reported as landed"


def filled(table: Location) -> None:
    for number in range(2):
        land(table, (0, number * 10, number * 10 + 10), (1, number * 2, number * 2 + 2))


def test_a_crash_at_every_step_of_a_compaction_changes_no_row(make_place: MakePlace) -> None:
    whole, steps = make_place("whole"), Mortal()
    filled(whole.location)
    compaction(whole.location, now_s=lambda: LATER_S, grace_s=YEARS_S, files=mortal(whole, steps)).run()
    assert len(steps.steps) >= 5
    files = set()
    for number in range(len(steps.steps)):
        place = make_place(str(number))
        table, dying = place.location, mortal(place, Mortal(number))
        filled(table)
        with pytest.raises(Died):
            compaction(table, now_s=lambda: LATER_S, grace_s=YEARS_S, files=dying).run()
        assert rows_of(table) == every((0, 0, 20), (1, 0, 4)), f"died before step {number}"
        files.add(len(listed_files(table)))
        land(table, (0, 20, 22))
        compaction(table, now_s=lambda: LATER_S, grace_s=YEARS_S).run()
        assert rows_of(table) == every((0, 0, 22), (1, 0, 4))
    assert files == {4, 2}, "the control: some died before the exchange, and some after it"


def test_files_that_crashes_leave_behind_are_deleted_when_they_are_old(make_place: MakePlace) -> None:
    # given a writer that died with its files written, and before its entry had its name
    whole, steps = make_place("whole"), Mortal()
    land(whole.location, (0, 0, 5), files=mortal(whole, steps))
    entry = max(at for at, (what, _) in enumerate(steps.steps) if what in ("link", "create"))
    place = make_place("lake")
    table = place.location
    with pytest.raises(Died):
        land(table, (0, 0, 5), files=mortal(place, Mortal(entry)))
    land(table, (0, 0, 5))
    unfinished = 1 if table.is_local else 0
    assert len(data_files(table)) == 2
    assert len(place.names(f"{LOG}/{UNFINISHED}*")) == unfinished

    # when they are still young, and when they are not
    young = compaction(table, now_s=time.time, grace_s=3600).run()
    assert (young.deleted_files, len(data_files(table))) == (0, 2), "the control"
    done = compaction(table, now_s=lambda: LATER_S, grace_s=0).run()

    # then
    assert done.deleted_files == 1 + unfinished
    assert data_files(table) == listed_files(table)
    assert place.names(f"{LOG}/{UNFINISHED}*") == []
    assert rows_of(table) == every((0, 0, 5))
