from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark import await_started, starting


class Query:
    """Says of itself one after the other of these; the last for ever."""

    def __init__(self, *messages: str, active: bool = True) -> None:
        self._messages = list(messages)
        self._active = active
        self.looks = 0

    @property
    def isActive(self) -> bool:
        return self._active

    @property
    def status(self) -> dict[str, Any]:
        self.looks += 1
        return {"message": self._messages.pop(0) if len(self._messages) > 1 else self._messages[0]}


@pytest.fixture(autouse=True)
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(starting, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))


def test_waits_as_long_as_spark_makes_the_sources() -> None:
    query: Any = Query("Initializing StreamExecution", "Initializing sources", "Waiting for next trigger")

    assert await_started(query)
    assert query.looks == 3


def test_a_query_that_has_begun_is_not_waited_for() -> None:
    query: Any = Query("Processing new data")

    assert await_started(query)
    assert query.looks == 1


def test_a_query_that_has_ended_is_not_waited_for() -> None:
    query: Any = Query("Initializing sources", active=False)

    assert await_started(query)


def test_says_that_it_has_not_begun_in_time() -> None:
    query: Any = Query("Initializing sources")

    assert not await_started(query, timeout_s=1.0)
    assert query.looks == pytest.approx(1.0 / starting.POLL_INTERVAL_S, abs=2)
