"""A partition goes back and forth between writers that know nothing of each other, while compactions run and the log is
cleaned up. Every offset is in the table once, no matter which of them runs next or dies."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.land.delta_entry import Entry, encode, entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.actors import random_numbers
from tests.unit.spark.pipelines.interleaving import MakeLog, Run
from tests.unit.spark.pipelines.places import DiskPlace, s3_place

RUNS = 15
SEEDS_ON_S3 = (1, 8)


def played(numbers: list[int], make_log: MakeLog = DeltaLog) -> Run:
    """On a disk."""
    with tempfile.TemporaryDirectory(prefix="holdfast-interleaving-", ignore_cleanup_errors=True) as directory:
        run = Run(DiskPlace(Path(directory) / "lake"), numbers, make_log)
        run.play()
    return run


def events(runs: list[Run]) -> list[int]:
    counts: list[Callable[[Run], int]] = [
        lambda run: run.races,
        lambda run: run.deaths,
        lambda run: run.exchanges,
        lambda run: run.cleanups,
    ]
    return [sum(map(count, runs)) for count in counts]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, (1 << 16) - 1), min_size=1, max_size=400))
def test_every_offset_is_there_once_in_any_order_of_steps(numbers: list[int]) -> None:
    played(numbers)


def test_every_offset_is_there_once_in_some_orders_of_requests_to_s3(s3: S3Emulator) -> None:
    runs = [Run(s3_place(s3), next(random_numbers(seed))) for seed in SEEDS_ON_S3]
    for run in runs:
        run.play()

    assert min(events(runs)) > 0, events(runs)
    with pytest.raises(AssertionError):  # the control
        Run(s3_place(s3), next(random_numbers(SEEDS_ON_S3[-1])), TakesTheNextNumber).play()


def test_the_runs_contain_races_deaths_exchanges_and_cleanups() -> None:
    runs = [played(numbers) for numbers in itertools.islice(random_numbers(1), RUNS)]

    assert min(events(runs)) > RUNS / 2, events(runs)


class NotExclusive(DeltaLog):
    """Overwrites an entry of another writer."""

    def append(self, entry: Entry) -> bool:
        assert self._version is not None
        self._files.remove(entry_name(self._version + 1))
        return super().append(entry)


class TakesTheNextNumber(DeltaLog):
    """After a conflict, it takes the next free number and does not read the entries of the others."""

    def append(self, entry: Entry) -> bool:
        while not super().append(entry):
            continue
        return True


class TrustsFreeNames(DeltaLog):
    """Takes a free name for the end of the log, although a clean-up may have freed it."""

    def append(self, entry: Entry) -> bool:
        assert self._version is not None
        number = self._version + 1
        if not self._files.create(entry_name(number), encode(entry, "")):
            self.refresh()
            return False
        self._version, self._last = number, self._files.read(entry_name(number))
        self._ends.update(entry.ends)
        return True

    def _is_unchanged(self) -> bool:
        return True


@pytest.mark.parametrize(("broken", "seed"), [(NotExclusive, 27), (TakesTheNextNumber, 8), (TrustsFreeNames, 5)])
def test_control_a_log_with_one_missing_check_is_found(broken: type[DeltaLog], seed: int) -> None:
    """The seeds are runs in which the missing check matters."""
    numbers = next(random_numbers(seed))
    with pytest.raises((AssertionError, HoldfastError)):  # rows twice, or left out
        played(numbers, broken)
    played(numbers)
