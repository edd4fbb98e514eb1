"""How long to leave a broker alone after it failed us."""

from __future__ import annotations

import random

_JITTER = (0.75, 1.5)
"""So that a thousand clients that lost one broker do not all come back in the same moment."""
_MOST_DOUBLINGS = 30


class Backoff:
    """Doubles with every failure, never below `least_s` nor above `most_s`. Times are points of `time.monotonic()`."""

    def __init__(self, least_s: float, most_s: float, randomness: random.Random) -> None:
        self._least_s = min(least_s, most_s)
        self._most_s = most_s
        self._random = randomness
        self._failures = 0
        self.ready_at = 0.0
        """When the next attempt may be made."""
        self.why = ""
        """What failed the last time."""

    def failed(self, now: float, why: str = "") -> None:
        doubled = self._least_s * 2.0 ** min(self._failures, _MOST_DOUBLINGS)
        delay = min(doubled, self._most_s) * self._random.uniform(*_JITTER)
        self._failures += 1
        self.why = why
        self.ready_at = now + min(max(delay, self._least_s), self._most_s)

    def succeeded(self) -> None:
        self._failures = 0
        self.ready_at = 0.0
        self.why = ""
