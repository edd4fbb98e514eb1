"""Log lines about brokers, of which there may be one for each client at the same moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 10.0


class LimitedLog:
    """At most one line about each subject in QUIET_SECONDS. The next line says how many were left out."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._now = now
        self._said: dict[object, tuple[float, int]] = {}
        """By subject: when the last line was written, and how many were left out since."""

    def warning(self, subject: object, text: str) -> None:
        """The subjects must be few, such as the ids of brokers."""
        now = self._now()
        last, omitted = self._said.get(subject, (-QUIET_SECONDS, 0))
        if now - last < QUIET_SECONDS and subject in self._said:
            self._said[subject] = (last, omitted + 1)
            return
        self._said[subject] = (now, 0)
        more = f" ({omitted} more since the last line about it)" if omitted else ""
        self._logger.warning("%s%s", text, more)
