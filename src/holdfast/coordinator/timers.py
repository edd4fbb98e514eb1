"""Deadlines that are moved far more often than they fire.

Every heartbeat moves its sender's session end. So moving a deadline later only writes down the new time; the one
entry in the heap finds out when it comes up, and goes back. Nothing is ever scanned.

A cancelled deadline leaves its entry behind. When most entries are such, the heap is built anew: a client that asks
for ids in a loop, or joins and leaves, must not fill the memory with ends of sessions that nobody waits for.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

Action = Callable[[int], None]
"""Called with the time at which it fires, in milliseconds."""


class Timer:
    __slots__ = ("_queued_ms", "_timers", "action", "at_ms")

    def __init__(self, at_ms: int, action: Action, timers: Timers) -> None:
        self.at_ms = at_ms
        self.action: Action | None = action
        self._queued_ms = at_ms
        self._timers = timers

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._timers._cancelled += 1


FEW: Final = 1_000
"""So many cancelled deadlines may always lie around."""


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._cancelled = 0
        """How many entries of the heap are cancelled, at most."""
        self._fired_ms = -1

    def at(self, at_ms: int, action: Action) -> Timer:
        # What an action sets up is due after now: one that waits for zero milliseconds must not keep `fire` for ever.
        timer = Timer(max(at_ms, self._fired_ms + 1), action, self)
        self._push(timer)
        if self._cancelled > FEW and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
        return timer

    def move(self, timer: Timer, at_ms: int) -> None:
        """Puts a deadline off or forward."""
        timer.at_ms = at_ms
        if at_ms < timer._queued_ms:
            self._push(timer)

    def _push(self, timer: Timer) -> None:
        timer._queued_ms = timer.at_ms
        heapq.heappush(self._heap, (timer.at_ms, next(self._order), timer))

    def next_ms(self) -> int | None:
        """When to look again: never later than the next deadline, perhaps earlier."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int, most: int | None = None) -> None:
        """Runs everything that is due, or the first so many of it; the others stay due."""
        self._fired_ms = now_ms
        while self._heap and self._heap[0][0] <= now_ms and most != 0:
            queued_ms, _, timer = heapq.heappop(self._heap)
            if timer.action is None or queued_ms != timer._queued_ms:
                continue
            if timer.at_ms > now_ms:
                self._push(timer)
                continue
            action, timer.action = timer.action, None
            action(now_ms)
            most = None if most is None else most - 1
