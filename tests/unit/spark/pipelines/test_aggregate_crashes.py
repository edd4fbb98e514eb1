"""A member dies at every step of a batch, or meets others at every step: the totals are what a recount says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.aggregate.task import Advanced
from holdfast.spark.pipelines.aggregate.version import Version, encode_version
from holdfast.spark.pipelines.aggregate.writer import Advance
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.types import TopicPartition
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.actors import Actor, random_numbers
from tests.unit.spark.pipelines.aggregate_harness import (
    TOPIC,
    WINDOWED,
    AggregateHarness,
    AggregatingMember,
    always_the_same,
    by_key,
    records_of,
)
from tests.unit.spark.pipelines.places import Died, DiskPlace, Mortal, Place, memory_place, s3_place

TOPIC_PARTITION = (TOPIC, 0)
LAST = 40


MakePlace = Callable[[Path], Place]


@pytest.fixture(params=["disk", "s3"])
def make_place(request: pytest.FixtureRequest) -> MakePlace:
    if request.param == "disk":
        return lambda directory: DiskPlace(directory / "state")
    s3: S3Emulator = request.getfixturevalue("s3")
    return lambda _directory: s3_place(s3)


def filled(directory: Path, make_place: MakePlace) -> AggregateHarness:
    world = AggregateHarness(directory, WINDOWED, place=make_place(directory))
    for partition in (0, 1):
        world.produce(partition, records_of(range(30)))
    world.member("before").apply((0, 0, 5))
    return world


def test_a_rerun_after_every_crash_point_of_a_batch_makes_every_total_right(
    tmp_path: Path, make_place: MakePlace
) -> None:
    def dying(world: AggregateHarness, mortal: Mortal) -> AggregatingMember:
        return world.member("one", world.place.files(mortal, with_reads=not world.place.location.is_local))

    whole = Mortal()
    dying(filled(tmp_path / "whole", make_place), whole).apply((0, 5, 20), (1, 0, 9))
    assert len(whole.steps) > 20, "the control: a batch has many steps"
    seen = set()
    for number in range(1, len(whole.steps)):  # in the first one the settings are compared
        # given a member that dies in the middle of a batch
        world = filled(tmp_path / str(number), make_place)
        with pytest.raises(Died):
            dying(world, Mortal(number)).apply((0, 5, 20), (1, 0, 9))
        ends = [getattr(world.store().newest((TOPIC, partition)), "end", 0) for partition in (0, 1)]
        assert world.totals() == world.recount((0, 0, ends[0]), (1, 0, ends[1])), f"died before step {number}"
        seen.add(tuple(ends))
        # when it repeats the batch, or another has planned more of it
        if number % 2:
            world.member("one").apply((0, 5, 20), (1, 0, 9))
        world.member("other").apply((0, 5, 25), (1, 0, 9))
        # then
        assert world.totals() == world.recount((0, 0, 25), (1, 0, 9)), f"died before step {number}"
    assert seen == {(5, 0), (20, 0), (20, 9)}, "the control: some died before a version stood, some between, some after"


MakeMember = Callable[..., AggregatingMember]


class Run:
    """Members of one partition that know nothing of each other. All follows from the numbers."""

    def __init__(
        self, numbers: Sequence[int], directory: Path, place: Place, make: MakeMember = AggregateHarness.member
    ) -> None:
        self._numbers = cycle(numbers or [0])
        hash_ = by_key if next(self._numbers) % 2 else always_the_same
        self._world = AggregateHarness(directory, WINDOWED, hash_, place=place)
        self._world.produce(0, records_of(range(LAST), keys=4))
        self._make = make
        self._end = 0
        self.deaths = self.races = 0

    def play(self) -> None:
        actors = [Actor(self._writer(name)) for name in ("one", "two", "three")] + [Actor(self._reader)]
        try:
            self._take_turns(actors)
        finally:
            for actor in actors:
                if not actor.is_over:
                    actor.step(dies=True)
        self._look()
        self._make(self._world, "the last").apply((0, 0, LAST))
        assert self._world.totals() == self._world.recount((0, 0, LAST))

    def _take_turns(self, actors: list[Actor]) -> None:
        for _ in range(20_000):
            alive = [actor for actor in actors if not actor.is_over]
            if not alive:
                return
            number = next(self._numbers)
            actor = alive[number % len(alive)]
            dies = number % 17 == 16
            self.deaths += dies
            actor.step(dies=dies)
            for _ in range(number >> 8 & 31):  # the others stand still for that long
                if not actor.is_over:
                    actor.step()
        raise AssertionError("somebody goes round in circles")

    def _writer(self, name: str) -> Callable[[Callable[[], None]], None]:
        def write(turn: Callable[[], None]) -> None:
            def step(_what: str, _path: str) -> None:
                turn()

            member = self._make(self._world, name, self._world.place.files(step, with_reads=True))
            for _ in range(4):
                # The group's offset is never beyond the state: it is stored when a batch is done.
                version = self._world.store().newest(TOPIC_PARTITION)
                start = max(0, (version.end if version else 0) - next(self._numbers) % 6)
                end = min(LAST, start + 1 + next(self._numbers) % 12)
                if start < end:
                    self.races += member.apply((0, start, end)).already > 0
                    self._look(end)

        return write

    def _reader(self, turn: Callable[[], None]) -> None:
        for _ in range(6):
            turn()
            self._look()

    def _look(self, at_least: int = 0) -> None:
        version = self._world.store().newest(TOPIC_PARTITION)
        assert at_least <= (version.end if version else 0), "what a batch has reported is there"
        if version is not None:
            assert version.end >= self._end, "the state never goes back"
            self._end = version.end
            assert self._world.totals() == self._world.recount((0, 0, version.end))


def on_disk(directory: Path) -> Place:
    return DiskPlace(directory / "state")


def in_memory(_directory: Path) -> Place:
    return memory_place()


def played(numbers: Sequence[int], make_place: MakePlace, make: MakeMember = AggregateHarness.member) -> Run:
    with tempfile.TemporaryDirectory(prefix="aggregate-") as directory:
        run = Run(numbers, Path(directory), make_place(Path(directory)), make)
        run.play()
    return run


@pytest.mark.parametrize("place", [on_disk, in_memory])
@settings(max_examples=30, deadline=None)
@given(numbers=st.lists(st.integers(0, (1 << 16) - 1), min_size=1, max_size=300))
def test_every_total_is_right_in_any_order_of_steps(place: MakePlace, numbers: list[int]) -> None:
    played(numbers, place)


def test_every_total_is_right_in_some_orders_of_requests_to_s3(s3: S3Emulator) -> None:
    for numbers, _ in zip(random_numbers(3), range(3), strict=False):
        played(numbers, lambda _directory: s3_place(s3))


@pytest.mark.parametrize("place", [on_disk, in_memory])
def test_the_runs_hold_what_they_are_there_for(place: MakePlace) -> None:
    runs = [played(numbers, place) for numbers, _ in zip(random_numbers(1), range(15), strict=False)]

    assert sum(run.races for run in runs) > 8, "writers met"
    assert sum(run.deaths for run in runs) > 8, "some died"


def not_exclusive(world: AggregateHarness, name: str, files: SharedFiles | None = None) -> AggregatingMember:
    """The last one wins."""
    member = world.member(name, files)

    def append(version: Version) -> bool:
        name = f"topics/{TOPIC}/0/versions/{version.name}"
        member.store.files.remove(name)
        return member.store.files.create(name, encode_version(version))

    member.store.append = append  # type: ignore[method-assign]
    return member


def takes_a_taken_name_for_its_own(
    world: AggregateHarness, name: str, files: SharedFiles | None = None
) -> AggregatingMember:
    """As if each refused write were one whose response was lost."""
    member = world.member(name, files)

    def append(version: Version) -> bool:
        member.store.files.create(f"topics/{TOPIC}/0/versions/{version.name}", encode_version(version))
        return True

    member.store.append = append  # type: ignore[method-assign]
    return member


def counts_all(world: AggregateHarness, name: str, files: SharedFiles | None = None) -> AggregatingMember:
    """It takes in all that the batch has, whatever the state reflects already."""
    member = world.member(name, files)
    honest: Callable[..., Advance] = member.advancing

    def advancing(*ranges: tuple[int, int, int], **more: Any) -> Advance:
        advance = honest(*ranges, **more)

        def from_the_start(versions: Mapping[TopicPartition, Version]) -> Sequence[Advanced]:
            return advance({where: _at_zero(version) for where, version in versions.items()})

        return from_the_start

    member.advancing = advancing  # type: ignore[method-assign]
    return member


def _at_zero(version: Version) -> Version:
    return Version(version.topic, version.partition, 0, 0, version.runs)


@pytest.mark.parametrize(
    ("careless", "place"),
    [
        (not_exclusive, on_disk),
        (not_exclusive, in_memory),
        (takes_a_taken_name_for_its_own, in_memory),
        (counts_all, on_disk),
        (counts_all, in_memory),
    ],
)
def test_control_a_member_with_one_missing_check_is_found(careless: MakeMember, place: MakePlace) -> None:
    with pytest.raises((AssertionError, HoldfastError)):
        for numbers, _ in zip(random_numbers(2), range(300), strict=False):
            played(numbers, place, careless)
