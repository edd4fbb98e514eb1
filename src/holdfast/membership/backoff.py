"""When to ask again: soon after the first failure, later after each further one, and never in step with the others."""

from __future__ import annotations

from holdfast.membership.settings import MembershipSettings

_JITTER = 0.2
_MOST_DOUBLINGS = 20


class Backoff:
    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self.failures = 0
        """In a row."""
        self.until = 0
        """Not before this time."""

    def failed(self, now: int) -> None:
        settings = self._settings
        doubled = settings.retry_backoff_ms << min(self.failures, _MOST_DOUBLINGS)
        delay = min(doubled, settings.retry_backoff_max_ms) * (1 + _JITTER * settings.jitter())
        self.failures += 1
        self.until = now + round(delay)

    def succeeded(self) -> None:
        self.failures = 0
        self.until = 0
