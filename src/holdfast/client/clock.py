"""The clock of the client, and all its waits.

No other module of the client reads the time or sleeps (tests/unit/client/test_clock.py), so that a test can pass in a
clock of its own.
"""

from __future__ import annotations

import select
import threading
import time
from typing import Final, Protocol

_MAX_POLL_MS: Final = 60_000  # poll accepts 31 bits of milliseconds; longer waits are repeated


class Clock(Protocol):
    def now(self) -> float:
        """Seconds of a monotonic clock. Deadlines are times of this clock."""

    def now_ms(self) -> int:
        """The same clock in whole milliseconds."""

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Waits until the event is set (True) or the time is over. None means no limit."""

    def wait_notified(self, condition: threading.Condition, timeout_s: float) -> bool:
        """Waits until the condition, which the caller holds, is notified (True) or the time is over."""

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        """Waits until the thread ends or the time is over. None means no limit."""

    def poll(self, descriptors: select.poll, deadline: float) -> list[tuple[int, int]]:
        """The descriptors that are ready; waits for one until the deadline, and may return none before it."""


class SystemClock:
    now = staticmethod(time.monotonic)  # without a Python frame, because every poll calls it

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        return event.wait(timeout_s)

    def wait_notified(self, condition: threading.Condition, timeout_s: float) -> bool:
        return condition.wait(timeout_s)

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        thread.join(timeout_s)

    def poll(self, descriptors: select.poll, deadline: float) -> list[tuple[int, int]]:
        left = deadline - time.monotonic()
        return descriptors.poll(min(max(0, int(left * 1000) + 1), _MAX_POLL_MS) if left > 0 else 0)


SYSTEM_CLOCK: Final = SystemClock()
