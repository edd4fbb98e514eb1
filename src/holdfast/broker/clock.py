"""Time as the broker's promises count it: a pause of our own never ends anybody's session.

When this process stood still (stopped by the operator, starved of CPU, a long garbage collection), the clients did
nothing wrong: what they sent in the meantime waits in the sockets. So deadlines are measured on a clock that leaves
our own pauses out, and after a pause the sockets are read before any deadline fires.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.05
"""How often deadlines are looked at. Sessions last seconds; twenty wake-ups a second cost nothing measurable."""

PAUSE_SECONDS: Final = 0.25
"""A tick that comes later than this was a pause of our own, not the ordinary jitter of a busy loop."""


class Timer:
    """A deadline that can be cancelled."""

    __slots__ = ("action", "deadline")

    def __init__(self, deadline: float, action: Callable[[], None]) -> None:
        self.deadline = deadline
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class PauseAwareClock:
    """A monotonic clock without our own pauses, and the deadlines that are measured on it.

    For deadlines that end something of a client's (an idle connection, later a session). What only ends a wait that
    the client itself bounded, such as a long poll, may use the loop's own timers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._paused_seconds = 0.0
        self._expected = math.inf
        self._handle: asyncio.TimerHandle | None = None
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._on_tick: list[Callable[[], None]] = []
        self.longest_pause_seconds = 0.0
        self.coarse = 0.0
        """`now` as of the last tick, for what is written down with every read and need not be exact."""
        self.pauses = 0

    def now(self) -> float:
        """Seconds on a clock that stood still whenever this process did."""
        seconds = self._loop.time()
        if seconds - self._expected > PAUSE_SECONDS:
            # A pause that the tick has not seen yet: asyncio reads the sockets before it runs the timers.
            seconds = self._expected
        return seconds - self._paused_seconds

    def start(self) -> None:
        self.coarse = self.now()
        self._expected = self._loop.time() + TICK_SECONDS
        self._handle = self._loop.call_at(self._expected, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def on_tick(self, action: Callable[[], None]) -> None:
        """Calls `action` with every tick, under the same promise: after a pause, the sockets were read before."""
        self._on_tick.append(action)

    def call_later(self, delay_seconds: float, action: Callable[[], None]) -> Timer:
        timer = Timer(self.now() + delay_seconds, action)
        heapq.heappush(self._timers, (timer.deadline, next(self._order), timer))
        return timer

    def _tick(self) -> None:
        late = self._loop.time() - self._expected
        self.longest_pause_seconds = max(self.longest_pause_seconds, late)
        if late > PAUSE_SECONDS:
            self.pauses += 1
            self._paused_seconds += late
            logger.warning("stood still for %.0f ms; sessions and idle times are extended by as much", late * 1000)
        self._expected = self._loop.time() + TICK_SECONDS
        self._handle = self._loop.call_at(self._expected, self._tick)
        self.coarse = self.now()
        if late > PAUSE_SECONDS:
            # libuv runs timers before it polls and asyncio after; two hops through the ready queue put one whole
            # pass over the sockets in between with either.
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
            logger.exception("a deadline's action failed; the others go on")
