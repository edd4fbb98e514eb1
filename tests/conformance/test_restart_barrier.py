"""All runs on a server wait for each other before it is killed, and none waits for one that failed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import BrokenBarrierError

import pytest

from tests.conformance.restart_barrier import RestartBarrier

NO_SETTINGS: Mapping[str, str] = {}


class Restarts:
    """Instead of a server: what it was restarted with."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, Mapping[str, str]]] = []

    def __call__(self, down_s: float, settings: Mapping[str, str]) -> None:
        self.seen.append((down_s, settings))


def test_server_is_restarted_once_for_all_plays() -> None:
    restarts = Restarts()

    with RestartBarrier(restarts, runs=3) as restart_barrier, ThreadPoolExecutor(3) as workers:
        runs = [workers.submit(restart_barrier.restart, 1.5, NO_SETTINGS) for _ in range(3)]
        for run in runs:
            run.result(timeout=10)

    assert restarts.seen == [(1.5, NO_SETTINGS)]


def test_the_barrier_opens_when_the_last_run_has_arrived() -> None:
    restarts = Restarts()

    with RestartBarrier(restarts, runs=2) as restart_barrier, ThreadPoolExecutor(2) as workers:
        first = workers.submit(restart_barrier.restart, 0.0, NO_SETTINGS)
        assert not first.done()
        assert not restarts.seen
        workers.submit(restart_barrier.restart, 0.0, NO_SETTINGS)
        first.result(timeout=10)

    assert len(restarts.seen) == 1


def test_play_that_failed_is_not_waited_for() -> None:
    restarts = Restarts()

    with RestartBarrier(restarts, runs=2) as restart_barrier, ThreadPoolExecutor(1) as workers:
        other = workers.submit(restart_barrier.restart, 0.0, NO_SETTINGS)
        restart_barrier.abort()

        with pytest.raises(BrokenBarrierError):
            other.result(timeout=10)

    assert not restarts.seen


def test_next_scenario_finds_the_settings_as_they_were() -> None:
    restarts = Restarts()

    with RestartBarrier(restarts, runs=1) as restart_barrier:
        restart_barrier.restart(0.0, {"group.max.size": "2"})

    assert restarts.seen == [(0.0, {"group.max.size": "2"}), (0.0, {})]
