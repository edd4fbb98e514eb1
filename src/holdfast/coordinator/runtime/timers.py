"""Deadlines that are moved far more often than they fire.

Every heartbeat moves its sender's session end. So moving a deadline later only writes down the new time; the one
entry in the heap finds out when it is due, and is queued again. Nothing is ever scanned.

A cancelled deadline leaves its entry behind. When most entries are cancelled, the heap is rebuilt: a client that asks
for ids in a loop, or joins and leaves, must not fill the memory with session ends of members that are gone.
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

    def move(self, at_ms: int) -> bool:
        """Moves the deadline. False if it has fired or was cancelled."""
        if self.action is None:
            return False
        self.at_ms = at_ms
        if at_ms < self._queued_ms:
            self._timers._push(self)
        return True

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._timers._cancelled += 1


MAX_CANCELLED_KEPT: Final = 1_000
"""Up to this many cancelled deadlines the heap is not rebuilt."""


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._cancelled = 0
        """How many entries of the heap are cancelled, at most."""
        self._fired_ms = -1

    def at(self, at_ms: int, action: Action) -> Timer:
        # An action schedules only for later than now: one that waits for zero milliseconds must not keep `fire` busy.
        timer = Timer(max(at_ms, self._fired_ms + 1), action, self)
        self._push(timer)
        if self._cancelled > MAX_CANCELLED_KEPT and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
        return timer

    def _push(self, timer: Timer) -> None:
        timer._queued_ms = timer.at_ms
        heapq.heappush(self._heap, (timer.at_ms, next(self._order), timer))

    def next_ms(self) -> int | None:
        """When to fire next: never later than the next deadline, perhaps earlier."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int, limit: int | None = None) -> None:
        """Runs the actions that are due, at most `limit` of them; the others stay due."""
        self._fired_ms = now_ms
        while self._heap and self._heap[0][0] <= now_ms and limit != 0:
            queued_ms, _, timer = heapq.heappop(self._heap)
            if timer.action is None or queued_ms != timer._queued_ms:
                continue
            if timer.at_ms > now_ms:
                self._push(timer)
                continue
            action, timer.action = timer.action, None
            action(now_ms)
            limit = None if limit is None else limit - 1
