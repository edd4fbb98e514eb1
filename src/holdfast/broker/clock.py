"""A clock that excludes pauses of this process, so that a pause of the broker never ends a session.

This process can be paused: stopped by the operator, starved of CPU, or blocked by a long garbage collection. Clients
are not to blame for that, and their requests wait in the sockets meanwhile. Deadlines are therefore measured on a clock
that excludes such pauses, and after a pause the sockets are read before any deadline fires.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from holdfast.broker.metrics import NO_METRICS, Metrics

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.05
"""How often deadlines are checked. Sessions last seconds; twenty wake-ups a second cost nothing measurable."""

PAUSE_SECONDS: Final = 0.25
"""A tick that is later than this counts as a pause of the process, not as the ordinary jitter of a busy loop."""


def wall_clock_ms() -> int:
    """For timestamps that are stored or displayed, never for deadlines."""
    return time.time_ns() // 1_000_000


class Timer:
    """A deadline that can be cancelled."""

    __slots__ = ("action", "deadline")

    def __init__(self, deadline: float, action: Callable[[], None]) -> None:
        self.deadline = deadline
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class PauseAwareClock:
    """A monotonic clock without the pauses of this process, and the deadlines that are measured on it.

    Use it for deadlines that end a connection or a session of a client. A wait that the client itself has bounded, such
    as a long poll, may use the loop's own timers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics = NO_METRICS) -> None:
        self._loop = loop
        self._metrics = metrics
        self._paused_seconds = 0.0
        self._expected = math.inf
        self._handle: asyncio.TimerHandle | None = None
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._on_tick: list[Callable[[], None]] = []
        self.max_pause_seconds = 0.0
        self.last_tick = 0.0
        """`now` as of the last tick. It is less exact and costs less, because it is used with every read."""
        self.pauses = 0

    def now(self) -> float:
        """Seconds on a clock that stops whenever this process is paused."""
        seconds = self._loop.time()
        if seconds - self._expected > PAUSE_SECONDS:
            # A pause that the tick has not seen yet: asyncio reads the sockets before it runs the timers.
            seconds = self._expected
        return seconds - self._paused_seconds

    def start(self) -> None:
        self.last_tick = self.now()
        self._expected = self._loop.time() + TICK_SECONDS
        self._handle = self._loop.call_at(self._expected, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def on_tick(self, action: Callable[[], None]) -> None:
        """Calls `action` with every tick. After a pause, the sockets are read first."""
        self._on_tick.append(action)

    def call_later(self, delay_seconds: float, action: Callable[[], None]) -> Timer:
        timer = Timer(self.now() + delay_seconds, action)
        heapq.heappush(self._timers, (timer.deadline, next(self._order), timer))
        return timer

    def _tick(self) -> None:
        late = self._loop.time() - self._expected
        self.max_pause_seconds = max(self.max_pause_seconds, late)
        self._metrics.loop_lagged(late)
        if late > PAUSE_SECONDS:
            self.pauses += 1
            self._paused_seconds += late
            logger.warning("paused for %.0f ms; sessions and idle times are extended by as much", late * 1000)
        self._expected = self._loop.time() + TICK_SECONDS
        self._handle = self._loop.call_at(self._expected, self._tick)
        self.last_tick = self.now()
        if late > PAUSE_SECONDS:
            # libuv runs timers before it polls, and asyncio after. With two passes through the ready queue, all sockets
            # are polled once in between in either case.
            self._loop.call_soon(self._loop.call_soon, self._fire)
        else:
            self._fire()

    def _fire(self) -> None:
        for each in self._on_tick:
            self._try(each)
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            action, timer.action = timer.action, None
            if action is not None:
                self._try(action)

    @staticmethod
    def _try(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("the action of a deadline failed; the others continue")
