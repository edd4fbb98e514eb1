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
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.aggregate_harness import (
    TOPIC,
    WINDOWED,
    AggregateHarness,
    AggregatingMember,
    always_the_same,
    by_key,
    records_of,
)
from tests.unit.spark.pipelines.interleaving import Actor, random_numbers
from tests.unit.spark.pipelines.land_harness import Died, MortalDisk

TOPIC_PARTITION = (TOPIC, 0)
LAST = 40


def filled(directory: Path) -> AggregateHarness:
    world = AggregateHarness(directory, WINDOWED)
    for partition in (0, 1):
        world.produce(partition, records_of(range(30)))
    world.member("before").apply((0, 0, 5))
    return world


def test_a_rerun_after_every_crash_point_of_a_batch_makes_every_total_right(tmp_path: Path) -> None:
    whole = MortalDisk()
    filled(tmp_path / "whole").member("one", whole).apply((0, 5, 20), (1, 0, 9))
    assert len(whole.steps) > 30, "the control: a batch has many steps"
    seen = set()
    for number in range(1, len(whole.steps)):  # in the first one the settings are compared
        # given a member that dies in the middle of a batch
        world = filled(tmp_path / str(number))
        with pytest.raises(Died):
            world.member("one", MortalDisk(number)).apply((0, 5, 20), (1, 0, 9))
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


class TurnDisk(Disk):
    """Others may come in before every single thing that is asked of it."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def names(self, directory: Path) -> list[str]:
        self._turn()
        return super().names(directory)

    def read(self, path: Path) -> bytes | None:
        self._turn()
        return super().read(path)

    def _step(self, what: str, path: Path) -> None:
        self._turn()


MakeMember = Callable[..., AggregatingMember]


class Run:
    """Members of one partition that know nothing of each other. All follows from the numbers."""

    def __init__(self, numbers: Sequence[int], directory: Path, make: MakeMember = AggregateHarness.member) -> None:
        self._numbers = cycle(numbers or [0])
        hash_ = by_key if next(self._numbers) % 2 else always_the_same
        self._world = AggregateHarness(directory, WINDOWED, hash_)
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
            member = self._make(self._world, name, TurnDisk(turn))
            for _ in range(4):
                # The group's offset is never beyond the state: it is stored when a batch is done.
                version = self._world.store().newest(TOPIC_PARTITION)
                start = max(0, (version.end if version else 0) - next(self._numbers) % 6)
                end = min(LAST, start + 1 + next(self._numbers) % 12)
                if start < end:
                    self.races += member.apply((0, start, end)).already > 0

        return write

    def _reader(self, turn: Callable[[], None]) -> None:
        for _ in range(6):
            turn()
            self._look()

    def _look(self) -> None:
        version = self._world.store().newest(TOPIC_PARTITION)
        if version is not None:
            assert version.end >= self._end, "the state never goes back"
            self._end = version.end
            assert self._world.totals() == self._world.recount((0, 0, version.end))


def played(numbers: Sequence[int], make: MakeMember = AggregateHarness.member) -> Run:
    with tempfile.TemporaryDirectory(prefix="aggregate-") as directory:
        run = Run(numbers, Path(directory), make)
        run.play()
    return run


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, (1 << 16) - 1), min_size=1, max_size=300))
def test_every_total_is_right_in_any_order_of_steps(numbers: list[int]) -> None:
    played(numbers)


def test_the_runs_hold_what_they_are_there_for() -> None:
    runs = [played(numbers) for numbers, _ in zip(random_numbers(1), range(15), strict=False)]

    assert sum(run.races for run in runs) > 8, "writers met"
    assert sum(run.deaths for run in runs) > 8, "some died"


def not_exclusive(world: AggregateHarness, name: str, disk: Disk | None = None) -> AggregatingMember:
    """The last one wins."""
    member = world.member(name, disk)

    def append(version: Version) -> bool:
        path = world.state / "topics" / TOPIC / "0" / "versions" / version.name
        member.store.disk.remove(path)
        return member.store.disk.create(path, encode_version(version))

    member.store.append = append  # type: ignore[method-assign]
    return member


def counts_all(world: AggregateHarness, name: str, disk: Disk | None = None) -> AggregatingMember:
    """It takes in all that the batch has, whatever the state reflects already."""
    member = world.member(name, disk)
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


@pytest.mark.parametrize("careless", [not_exclusive, counts_all])
def test_control_a_member_with_one_missing_check_is_found(careless: MakeMember) -> None:
    with pytest.raises((AssertionError, HoldfastError)):
        for numbers, _ in zip(random_numbers(2), range(300), strict=False):
            played(numbers, careless)
