"""The lines that a broker logs when a test misuses it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.broker.background_client import LATENCY_S, BackgroundClient
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

_HARMLESS = re.compile(r"^\S+ \S+ (INFO|DEBUG) |^holdfast listening on |paused for ")
_SETTLED_S = 0.2


class ExpectedLog:
    """Lines in the broker's log that are neither routine nor about a pause of this busy machine."""

    def __init__(self, broker: HoldfastBroker) -> None:
        self._broker = broker
        self._already_logged = len(broker.log_text())

    def lines(self) -> list[str]:
        logged = self._broker.log_text()[self._already_logged :]
        return [line for line in logged.splitlines() if line and not _HARMLESS.search(line)]

    @contextmanager
    def is_logged_in(self, count: int, latency_s: float = LATENCY_S) -> Iterator[None]:
        """The block misuses the broker. Another client is not disturbed, and the log has `count` lines about it."""
        with BackgroundClient(self._broker.address, latency_s):
            yield
        eventually(lambda: len(self.lines()) >= count, f"{count} log lines", within_s=10)
        if count == 0:
            time.sleep(_SETTLED_S)  # nothing to wait for: give a line that should not come the time to come
        assert len(self.lines()) == count, "\n".join(self.lines())
