"""A partition goes back and forth between writers that know nothing of each other, while compactions run and the log is
cleaned up. Every offset is in the table once, no matter which of them runs next or dies."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.land.delta_entry import Entry, encode, entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from tests.unit.spark.pipelines.actors import random_numbers
from tests.unit.spark.pipelines.interleaving import MakeLog, Run

RUNS = 15


@contextmanager
def run_of(numbers: list[int], make_log: MakeLog = DeltaLog) -> Iterator[Run]:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-interleaving-"))
    try:
        yield Run(directory / "lake", numbers, make_log)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, (1 << 16) - 1), min_size=1, max_size=400))
def test_every_offset_is_there_once_in_any_order_of_steps(numbers: list[int]) -> None:
    with run_of(numbers) as run:
        run.play()


def test_the_runs_contain_races_deaths_exchanges_and_cleanups() -> None:
    races = deaths = exchanges = cleanups = 0
    for numbers in itertools.islice(random_numbers(1), RUNS):
        with run_of(numbers) as run:
            run.play()
            races, deaths = races + run.races, deaths + run.deaths
            exchanges, cleanups = exchanges + run.exchanges, cleanups + run.cleanups

    assert min(races, deaths, exchanges, cleanups) > RUNS / 2, (races, deaths, exchanges, cleanups)


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


@pytest.mark.parametrize(("broken", "seed"), [(NotExclusive, 20), (TakesTheNextNumber, 20), (TrustsFreeNames, 5)])
def test_control_a_log_with_one_missing_check_is_found(broken: type[DeltaLog], seed: int) -> None:
    """The seeds are runs in which the missing check matters."""
    numbers = next(random_numbers(seed))
    with run_of(numbers, broken) as run, pytest.raises((AssertionError, HoldfastError)):  # rows twice, or left out
        run.play()
    with run_of(numbers) as run:
        run.play()
