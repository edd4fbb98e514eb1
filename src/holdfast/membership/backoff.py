"""Exponential backoff with jitter."""

from __future__ import annotations

from collections.abc import Callable

_MAX_DOUBLINGS = 30


class Backoff:
    """Doubles with every failure in a row. The unit of time is the caller's."""

    def __init__(self, initial: float, maximum: float, jitter: Callable[[], float], *, clamp: bool = False) -> None:
        """`jitter` returns the factor for the next delay. With `clamp`, the delay never exceeds the two bounds."""
        self._initial = min(initial, maximum)
        self._maximum = maximum
        self._jitter = jitter
        self._clamp = clamp
        self.failures = 0
        """The number of failures in a row."""
        self.ready_at = 0.0
        """When the next attempt may be made."""
        self.last_error = ""

    def failed(self, now: float, error: str = "") -> None:
        delay = min(self._initial * (1 << min(self.failures, _MAX_DOUBLINGS)), self._maximum) * self._jitter()
        if self._clamp:
            delay = min(max(delay, self._initial), self._maximum)
        self.failures += 1
        self.ready_at = now + delay
        self.last_error = error

    def succeeded(self) -> None:
        self.failures = 0
        self.ready_at = 0.0
        self.last_error = ""
