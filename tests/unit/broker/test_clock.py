"""The clock that leaves our own pauses out, under a loop whose time the test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from holdfast.broker.clock import PAUSE_SECONDS, TICK_SECONDS, PauseAwareClock


class FakeLoop:
    """Timers first, then the sockets, then what is ready: libuv's order, the harder one for a pause."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.sockets: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ready: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._order = itertools.count()

    def time(self) -> float:
        return self.seconds

    def call_at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._timers, (when, next(self._order), action, arguments))

    def call_soon(self, action: Callable[..., None], *arguments: Any) -> None:
        self._ready.append((action, arguments))

    def turn(self) -> None:
        while self._timers and self._timers[0][0] <= self.seconds:
            _, _, action, arguments = heapq.heappop(self._timers)
            action(*arguments)
        for _ in range(len(self._ready)):
            action, arguments = self._ready.popleft()
            action(*arguments)
        sockets, self.sockets = self.sockets, []
        for readable in sockets:
            readable()

    def run(self, seconds: float, step: float = TICK_SECONDS) -> None:
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds += step
            self.turn()


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def clock(loop: FakeLoop) -> PauseAwareClock:
    clock = PauseAwareClock(cast("asyncio.AbstractEventLoop", loop))
    clock.start()
    return clock


def test_a_deadline_fires_once_and_not_before_its_time(loop: FakeLoop, clock: PauseAwareClock) -> None:
    fired: list[float] = []
    began = loop.seconds
    clock.call_later(1.0, lambda: fired.append(loop.seconds - began))

    loop.run(5.0)

    assert len(fired) == 1
    assert 1.0 <= fired[0] <= 1.0 + 3 * TICK_SECONDS


def test_a_cancelled_deadline_does_not_fire(loop: FakeLoop, clock: PauseAwareClock) -> None:
    fired: list[str] = []
    clock.call_later(1.0, lambda: fired.append("cancelled")).cancel()
    clock.call_later(1.0, lambda: fired.append("kept"))

    loop.run(2.0)

    assert fired == ["kept"]


def test_a_pause_moves_all_deadlines_by_as_much(
    loop: FakeLoop, clock: PauseAwareClock, caplog: pytest.LogCaptureFixture
) -> None:
    fired: list[float] = []
    began = loop.seconds
    clock.call_later(2.0, lambda: fired.append(loop.seconds - began))
    loop.run(0.5)

    with caplog.at_level(logging.WARNING):
        loop.seconds += 60.0
        loop.run(5.0)

    assert len(fired) == 1
    assert 62.0 - 2 * TICK_SECONDS <= fired[0] <= 62.0 + 4 * TICK_SECONDS
    assert clock.pauses == 1
    assert clock.max_pause_seconds == pytest.approx(60.0, abs=2 * TICK_SECONDS)
    assert "paused for" in caplog.text


def test_without_a_pause_the_same_time_ends_the_deadline(loop: FakeLoop, clock: PauseAwareClock) -> None:
    fired: list[str] = []
    clock.call_later(2.0, lambda: fired.append("ended"))

    loop.run(2.5)

    assert fired == ["ended"]


def test_after_a_pause_the_sockets_are_read_before_any_deadline_fires(loop: FakeLoop, clock: PauseAwareClock) -> None:
    events: list[str] = []
    timer = clock.call_later(1.0, lambda: events.append("session ended"))
    loop.run(0.9)

    def heartbeat_arrives() -> None:
        events.append("heartbeat read")
        timer.cancel()

    # The deadline lies inside the time that is left even without the pause, and the heartbeat waits in the socket.
    loop.sockets = [heartbeat_arrives]
    loop.seconds += 0.1 + TICK_SECONDS + PAUSE_SECONDS + 0.01
    loop.run(2.0)

    assert events == ["heartbeat read"]


def test_what_is_read_before_the_late_tick_does_not_lie_in_the_future(loop: FakeLoop, clock: PauseAwareClock) -> None:
    loop.run(1.0)
    loop.seconds += 3600.0
    read_at = clock.now()  # asyncio polls the sockets before it runs the timers

    loop.turn()

    assert read_at <= clock.now() + TICK_SECONDS, "this connection could not become idle for an hour"


def test_timers_fire_even_if_every_tick_is_late(loop: FakeLoop, clock: PauseAwareClock) -> None:
    fired: list[str] = []
    clock.call_later(1.0, lambda: fired.append("ended"))

    loop.run(60.0, step=PAUSE_SECONDS + TICK_SECONDS + 0.05)

    assert fired == ["ended"]


def test_lateness_below_a_pause_extends_nothing(loop: FakeLoop, clock: PauseAwareClock) -> None:
    before = clock.now()

    loop.run(10.0, step=TICK_SECONDS + PAUSE_SECONDS / 2)

    assert clock.pauses == 0
    assert clock.now() - before >= 10.0
    assert clock.max_pause_seconds > 0


def test_an_action_that_fails_does_not_end_all_other_deadlines(loop: FakeLoop, clock: PauseAwareClock) -> None:
    fired: list[str] = []

    def fail() -> None:
        raise RuntimeError("a bug in one deadline")

    clock.call_later(0.1, fail)
    clock.call_later(1.0, lambda: fired.append("the other"))

    for _ in range(60):
        try:
            loop.run(TICK_SECONDS)
        except RuntimeError:
            continue  # an event loop reports it and goes on

    assert fired == ["the other"]
