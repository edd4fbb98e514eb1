"""A partition goes back and forth between writers that know nothing of each other, while compactions run.
Every offset is in the table once, no matter which of them runs next or dies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.land.manifest import Entry, number_of
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.interleaving import TABLE, MemoryDisk, Run, random_numbers


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, (1 << 16) - 1), min_size=1, max_size=400))
def test_every_offset_is_there_once_in_any_order_of_steps(numbers: list[int]) -> None:
    Run(numbers).play()


def test_the_runs_hold_what_they_are_there_for() -> None:
    runs = [Run(numbers) for numbers, _ in zip(random_numbers(1), range(60), strict=False)]
    for run in runs:
        run.play()

    assert sum(run.races for run in runs) > 30, "writers met"
    assert sum(run.deaths for run in runs) > 30, "some died"


class NotExclusive(ManifestStore):
    """The last one wins."""

    def append(self, entry: Entry) -> bool:
        self.disk.remove(self._entries((entry.topic, entry.partition)) / entry.name)
        return super().append(entry)


class LooksOnce(ManifestStore):
    """Does not look again whether a compaction has come in between."""

    def _newest_and_later_entries(self, where: TopicPartition) -> tuple[tuple[int, int] | None, list[str]]:
        newest = self._newest(where)
        since = -1 if newest is None else newest[1]
        return newest, [name for name in self.disk.names(self._entries(where)) if number_of(name) >= since]


class TakesItselfForStale(ManifestStore):
    """Its entry was taken in by a compaction before it looked, and it thinks that it came too late."""

    def _includes(self, where: TopicPartition, entry: Entry) -> bool:
        return False


@pytest.mark.parametrize("broken", [NotExclusive, LooksOnce, TakesItselfForStale])
def test_control_a_store_with_one_missing_check_is_found(broken: type[ManifestStore]) -> None:
    def make(disk: MemoryDisk) -> ManifestStore:
        return broken(TABLE, disk)

    with pytest.raises((AssertionError, HoldfastError, KeyError)):  # rows twice, a broken chain, a file that is gone
        for numbers, _ in zip(random_numbers(2), range(1000), strict=False):
            Run(numbers, make).play()
