"""A batch advances the state by what it does not reflect yet, no matter which process has done the rest."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePosixPath

import pytest

from holdfast.spark.pipelines.aggregate.errors import RunMissing, SettingsMismatch, SumOverflow
from holdfast.spark.pipelines.aggregate.task import Advanced
from holdfast.spark.pipelines.aggregate.version import Version
from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.errors import Damaged, DataLoss, TooNew, Unwritable
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.aggregate_harness import (
    COUNTED,
    TOPIC,
    WHOLE,
    AggregateHarness,
    AggregatingMember,
    Record,
    records_of,
)
from tests.unit.spark.pipelines.places import DiskPlace, Place, s3_place

TOPIC_PARTITION = (TOPIC, 0)


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return DiskPlace(tmp_path / "state") if request.param == "disk" else s3_place(request.getfixturevalue("s3"))


only_on_a_disk = pytest.mark.parametrize("place", ["disk"], indirect=True)


@pytest.fixture
def world(tmp_path: Path, place: Place) -> AggregateHarness:
    world = AggregateHarness(tmp_path, place=place)
    for partition in (0, 1):
        world.produce(partition, records_of(range(partition * 1000, partition * 1000 + 100)))
    return world


def newest(world: AggregateHarness, partition: int = 0) -> Version:
    version = world.store().newest((TOPIC, partition))
    assert version is not None
    return version


def runs_there(world: AggregateHarness) -> set[str]:
    return {PurePosixPath(name).name for name in world.place.names("topics/*/runs/*")}


def versions_there(world: AggregateHarness) -> list[PurePosixPath]:
    return [PurePosixPath(name) for name in world.place.names("topics/*/0/versions/*")]


def test_batches_follow_each_other(world: AggregateHarness) -> None:
    member = world.member("one")

    first = member.apply((0, 0, 30), (1, 0, 7))
    second = member.apply((0, 30, 60), (1, 7, 7))

    assert world.totals() == world.recount((0, 0, 60), (1, 0, 7))
    assert (first.records, first.partitions, first.already, first.loaded_bytes) == (37, 2, 0, 0)
    assert (second.records, second.keys, second.partitions, second.already) == (30, 10, 1, 0)
    assert second.loaded_bytes == 0, "what it has made itself is in its cache"
    assert (newest(world).first, newest(world).end) == (30, 60)


def test_partitions_are_entered_at_the_same_time(world: AggregateHarness) -> None:
    for partition in range(2, 9):
        world.produce(partition, records_of(range(20)))
    every = [(partition, 0, 20) for partition in range(9)]
    world.member("other").apply((3, 0, 5))

    done = world.member("one", max_concurrent=4).apply(*every)

    assert world.totals() == world.recount(*every)
    assert (done.partitions, done.already) == (9, 5)


def test_a_batch_that_is_repeated_changes_nothing(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 30))
    before = newest(world)

    again = world.member("two").apply((0, 0, 30))

    assert (again.records, again.already, again.loaded_bytes) == (0, 30, 0)
    assert newest(world) == before


def test_a_batch_that_the_state_has_in_part_adds_the_rest(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 30))

    done = world.member("two").apply((0, 10, 40))

    assert world.totals() == world.recount((0, 0, 40))
    assert (done.records, done.already) == (10, 20)


def test_a_partition_that_is_gained_is_loaded_and_one_that_is_kept_is_not(world: AggregateHarness) -> None:
    one, other = world.member("one"), world.member("other")
    one.apply((0, 0, 30))
    size_bytes = newest(world).size_bytes

    gained = other.apply((0, 30, 40))
    kept = other.apply((0, 40, 50))
    back = one.apply((0, 50, 60))

    assert (gained.loaded_bytes, kept.loaded_bytes) == (size_bytes, 0)
    assert 0 < back.loaded_bytes <= newest(world).size_bytes
    assert world.totals() == world.recount((0, 0, 60))


def test_a_restarted_member_loads_nothing_and_one_without_a_cache_loads_all(
    world: AggregateHarness,
) -> None:
    world.member("static").apply((0, 0, 30), (1, 0, 30))
    world.began_s = 4e9  # what is in the cache is from another life

    restarted = world.member("static").apply((0, 30, 60))
    control = world.member("dynamic").apply((1, 30, 60))

    assert restarted.loaded_bytes == 0
    assert control.loaded_bytes > 0
    assert world.totals() == world.recount((0, 0, 60), (1, 0, 60))


def test_of_two_writers_at_the_same_offset_one_enters_and_the_other_adds_the_rest(world: AggregateHarness) -> None:
    slow = world.member("slow")
    advance = slow.advancing((0, 0, 30))

    def overtaken(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
        advanced = list(advance(versions))
        if versions[TOPIC_PARTITION].end == 0:
            world.member("fast").apply((0, 0, 20))
        return advanced

    done = slow.apply((0, 0, 30), advance=overtaken)

    assert world.totals() == world.recount((0, 0, 30))
    assert (done.records, done.already) == (10, 20)


def test_writers_that_would_begin_at_different_offsets_agree(world: AggregateHarness) -> None:
    world.store().begin(TOPIC_PARTITION, 5)

    done = world.member("late").apply((0, 3, 30))

    assert world.totals() == world.recount((0, 5, 30))
    assert (done.records, done.already) == (25, 2)


def test_a_range_without_records_advances_the_state_too(world: AggregateHarness) -> None:
    """Where a transaction ended, or the log was compacted."""
    member = world.member("one")
    member.apply((0, 0, 30))
    member.apply((0, 30, 40), advance=member.advancing((0, 30, 40), without=range(30, 40)))
    before = newest(world)
    member.apply((0, 40, 50))

    assert (before.first, before.end) == (30, 40)
    assert world.totals() == world.recount((0, 0, 30), (0, 40, 50))


def test_a_gap_is_an_error(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 30))

    with pytest.raises(DataLoss, match=r"payments-0 is counted up to 30, and the batch begins at 32: .* offset to 30"):
        world.member("two").apply((0, 32, 40))

    assert world.totals() == world.recount((0, 0, 30))


def test_a_gap_is_recorded_if_the_user_is_content_with_it(
    world: AggregateHarness, caplog: pytest.LogCaptureFixture
) -> None:
    world.member("one").apply((0, 0, 30))

    with caplog.at_level(logging.WARNING):
        done = world.member("two", fail_on_data_loss=False).apply((0, 32, 40))

    assert world.totals() == world.recount((0, 0, 30), (0, 32, 40))
    assert [tuple(one) for one in done.lost] == [(TOPIC, 0, 30, 32)]
    assert "payments-0 is counted up to 30, and the batch begins at 32" in caplog.text


def test_a_batch_costs_what_it_touches_and_not_what_the_state_has(world: AggregateHarness) -> None:
    keys = 3_000
    world.produce(2, [Record(b"key %d" % number) for number in [*range(keys), 5, 6, 7, *range(keys)]])
    member = world.member("one")

    whole = member.apply((2, 0, keys))
    few = member.apply((2, keys, keys + 3))
    control = member.apply((2, keys + 3, 2 * keys + 3))

    assert few.keys == 3
    assert few.written_bytes * 20 < whole.written_bytes
    assert few.state_bytes == whole.state_bytes + few.written_bytes, "the old run stays as it is"
    assert control.written_bytes >= whole.written_bytes
    assert world.totals() == world.recount((2, 0, 2 * keys + 3))


# -- what can be wrong -------------------------------------------------------------------------------------------------


@only_on_a_disk
def test_a_full_disk_is_one_clear_error_and_the_batch_follows_when_there_is_room(
    world: AggregateHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.member("one")
    member.apply((0, 0, 30))

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unwritable, match=r"there is no room left for .*; nothing is lost: ") as reported:
            member.apply((0, 30, 60), (1, 0, 30))
    assert reported.value.retriable
    assert world.totals() == world.recount((0, 0, 30))

    member.apply((0, 30, 60), (1, 0, 30))
    assert world.totals() == world.recount((0, 0, 60), (1, 0, 30))


def test_a_cache_without_room_is_the_same_error(world: AggregateHarness) -> None:
    member = world.member("one")
    member.cache.parent.mkdir(parents=True)
    member.cache.write_text("a file where a directory should be")

    with pytest.raises(Unwritable, match="nothing is lost"):
        member.apply((0, 0, 30))

    member.cache.unlink()
    member.apply((0, 0, 30))
    assert world.totals() == world.recount((0, 0, 30))


def test_a_truncated_version_is_one_clear_error_and_nothing_is_counted(
    world: AggregateHarness,
) -> None:
    world.member("one").apply((0, 0, 30))
    (path,) = world.place.names("topics/*/0/versions/*")
    whole = world.place.overwrite(path, world.place.read(path)[:100])

    with pytest.raises(Damaged, match=r"00000000000000000000\.json is no version of a state .*cut short"):
        world.member("two").apply((0, 30, 60))

    world.place.overwrite(path, whole)
    world.member("two").apply((0, 30, 60))
    assert world.totals() == world.recount((0, 0, 60))


def test_a_version_of_a_newer_format_is_refused(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 30))
    (path,) = world.place.names("topics/*/0/versions/*")
    whole = world.place.overwrite(path, world.place.read(path).replace(b'"format":1', b'"format":2'))

    with pytest.raises(TooNew, match="has format 2, and this version of Holdfast knows 1: update it"):
        world.member("two").apply((0, 30, 60))
    with pytest.raises(TooNew):
        world.totals()

    world.place.overwrite(path, whole)
    world.member("two").apply((0, 30, 60))
    assert world.totals() == world.recount((0, 0, 60))


@pytest.mark.parametrize("damage", ["short", "changed"])
def test_a_run_that_was_damaged_is_one_clear_error(world: AggregateHarness, damage: str) -> None:
    world.member("one").apply((0, 0, 30))
    (path,) = world.place.names("topics/*/0/runs/*")
    content = world.place.read(path)
    at = len(content) // 2
    bad = content[:at] if damage == "short" else content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    whole = world.place.overwrite(path, bad)

    with pytest.raises(Damaged, match=r"\.arrow is no run of a state"):
        world.member("two").apply((0, 30, 60))
    with pytest.raises(Damaged, match=r"\.arrow is no run of a state"):
        world.totals()

    world.place.overwrite(path, whole)
    world.member("two").apply((0, 30, 60))
    assert world.totals() == world.recount((0, 0, 60))


def test_a_run_that_is_gone_although_it_counts_is_one_clear_error(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 30))
    (path,) = world.place.names("topics/*/0/runs/*")
    whole = world.place.read(path)
    world.place.delete(path)

    with pytest.raises(Damaged, match=r"\.arrow does not exist: .* the current version lists it"):
        world.member("two").apply((0, 30, 60))

    world.place.files().create(path, whole)
    world.member("two").apply((0, 30, 60))
    assert world.totals() == world.recount((0, 0, 60))


def test_a_run_that_is_gone_because_others_went_on_is_looked_up_again(world: AggregateHarness) -> None:
    world.member("one").apply((0, 0, 10))
    slow = world.member("slow")
    advance = slow.advancing((0, 10, 60))

    def too_slow(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
        if versions[TOPIC_PARTITION].end == 10:
            world.member("fast").apply((0, 10, 50))
            raise RunMissing("a run")
        return list(advance(versions))

    done = slow.apply((0, 10, 60), advance=too_slow)

    assert (done.records, done.already) == (10, 40)
    assert world.totals() == world.recount((0, 0, 60))


def test_a_run_that_is_deleted_before_its_entry_is_not_entered(world: AggregateHarness) -> None:
    member = world.member("one")
    advance = member.advancing((0, 0, 30))

    def deleted(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
        advanced = list(advance(versions))
        world.place.delete(member.store.run(TOPIC_PARTITION, advanced[0].runs[0].name).name)
        return advanced

    with pytest.raises(Unwritable, match="No such file"):
        member.apply((0, 0, 30), advance=deleted)

    assert newest(world).end == 0
    member.apply((0, 0, 30))
    assert world.totals() == world.recount((0, 0, 30))


def test_a_sum_that_does_not_fit_stops_the_query_and_changes_nothing(world: AggregateHarness) -> None:
    world.produce(2, [Record(b"a", 2**62), Record(b"a", 2**62)])
    member = world.member("one")
    member.apply((2, 0, 1))

    with pytest.raises(SumOverflow, match="does not fit into 64 bits"):
        member.apply((2, 1, 2))

    assert world.totals() == world.recount((2, 0, 1))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (COUNTED, r"amount 'amount' there, None here"),
        (replace(WHOLE, window_us=5), r"window_us None there, 5 here"),
        (replace(WHOLE, key="upper(key)"), r"key 'key' there, 'upper\(key\)' here"),
        (replace(WHOLE, amount_type="double"), r"amount_type 'bigint' there, 'double' here"),
    ],
)
def test_other_settings_than_the_state_was_begun_with_are_refused_by_name(
    world: AggregateHarness, other: object, said: str
) -> None:
    world.member("one").apply((0, 0, 30))
    world.settings = other  # type: ignore[assignment]

    with pytest.raises(SettingsMismatch, match=said):
        world.member("two")


# -- what nobody needs -------------------------------------------------------------------------------------------------


def tidying(world: AggregateHarness, name: str = "one") -> AggregatingMember:
    """A member that tidies up after every batch, and not once a minute."""
    clock = count(0, 1000)
    return world.member(name, monotonic_s=lambda: float(next(clock)), grace_s=300)


def test_what_is_out_of_date_is_deleted_after_the_grace_time_and_not_before(world: AggregateHarness) -> None:
    member = tidying(world)
    for at in range(20):
        member.apply((0, at, at + 1))
    listed = {run.name for run in newest(world).runs}
    assert len(runs_there(world)) == 20, "the control: they are young"

    world.place.later(1000)
    member.apply((0, 20, 21))

    there = runs_there(world)
    assert {run.name for run in newest(world).runs} <= there
    assert listed <= there, "the version before stays whole"
    assert len(there) < 10
    assert len(versions_there(world)) == 2
    assert world.totals() == world.recount((0, 0, 21))


@only_on_a_disk
def test_what_killed_tasks_left_unfinished_is_deleted_when_it_is_old(world: AggregateHarness) -> None:
    # given a member that was killed before its run had a name, and one before its version had
    member = tidying(world)
    member.apply((0, 0, 1))
    home = world.place.location.path / "topics" / TOPIC / "0"
    left = [home / "runs" / f"{UNFINISHED}1", home / "versions" / f"{UNFINISHED}2"]
    for path in left:
        path.write_bytes(b"half of it")

    # when they are as old as a task that is still at work may be, and when they are older
    world.place.later(500)
    member.apply((0, 1, 2))
    assert [path.exists() for path in left] == [True, True], "the control"
    world.place.later(500)
    member.apply((0, 2, 3))

    # then
    assert [path.exists() for path in left] == [False, False]
    assert world.totals() == world.recount((0, 0, 3))


def test_cleaning_up_after_the_own_version_was_deleted_changes_nothing(world: AggregateHarness) -> None:
    # given a version that was deleted because others went on, and one before it that nobody got to
    member = world.member("one")
    for at in range(3):
        member.apply((0, at, at + 1))
    mine = newest(world)
    for at in range(3, 6):
        member.apply((0, at, at + 1))
    world.place.later(1000)
    world.place.delete(f"topics/{TOPIC}/0/versions/{mine.name}")
    there = runs_there(world), versions_there(world)

    # when
    gone = world.store().delete_superseded(mine, 300)

    # then
    assert gone == 0
    assert (runs_there(world), versions_there(world)) == there
    assert world.totals() == world.recount((0, 0, 6))


def test_the_version_before_the_last_can_be_gone_back_to(world: AggregateHarness) -> None:
    member = tidying(world)
    for at in range(0, 20, 5):
        world.place.later(1000)
        member.apply((0, at, at + 5))
    assert [path.stem for path in versions_there(world)] == [f"{10:020d}", f"{15:020d}"]

    world.place.delete(str(versions_there(world)[-1]))  # as the error of a damaged one says
    world.member("two").apply((0, 15, 30))

    assert world.totals() == world.recount((0, 0, 30))


@pytest.mark.parametrize("was_spared", [False, True])
def test_a_writer_whose_version_name_is_free_again_does_not_write_it(world: AggregateHarness, was_spared: bool) -> None:
    slow = world.member("slow")
    advance = slow.advancing((0, 0, 10))

    def away(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
        advanced = list(advance(versions))
        if versions[TOPIC_PARTITION].end == 0:
            written = slow.store.run(TOPIC_PARTITION, advanced[0].runs[0].name).name
            fast = tidying(world, "fast")
            for at in range(5):
                world.place.later(1000)
                fast.apply((0, at, at + 1))
            assert f"{0:020d}" not in [path.stem for path in versions_there(world)], "the control: it is free"
            assert world.place.names(written) == [], "and what it wrote is gone"
            if was_spared:
                world.place.files().create(written, b"as if it were not")
        return advanced

    done = slow.apply((0, 0, 10), advance=away)

    assert (done.records, done.already) == (5, 5)
    assert world.totals() == world.recount((0, 0, 10))


def test_the_run_of_a_slow_batch_is_not_deleted_while_it_can_be_committed(world: AggregateHarness) -> None:
    # given old versions and a run that a task wrote long ago, on top of the newest one
    fast, slow = world.member("fast"), world.member("slow")
    for at in range(3):
        world.place.later(1000)
        fast.apply((0, at, at + 1))
    base = newest(world)
    advance = slow.advancing((0, 3, 10))

    def slowly(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
        advanced = list(advance(versions))
        world.place.later(5000)
        # when the writer of the newest version cleans up only now
        assert len(versions_there(world)) == 3
        world.store().delete_superseded(base, 300)
        assert len(versions_there(world)) == 2, "the control: it has deleted what is old"
        return advanced

    done = slow.apply((0, 3, 10), advance=slowly)

    # then
    assert (done.records, done.already) == (7, 0)
    assert world.totals() == world.recount((0, 0, 10))
