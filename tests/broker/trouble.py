"""What the broker says about the trouble that a test makes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.broker.bystander import LATENCY_S, Bystander
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

_HARMLESS = re.compile(r"^\S+ \S+ (INFO|DEBUG) |^holdfast listening on |stood still for ")
_SETTLED_S = 0.2


class Trouble:
    """Lines in the broker's log that are neither routine nor about a pause of this busy machine."""

    def __init__(self, broker: HoldfastBroker) -> None:
        self._broker = broker
        self._already_said = len(broker.log_text())

    def lines(self) -> list[str]:
        said = self._broker.log_text()[self._already_said :]
        return [line for line in said.splitlines() if line and not _HARMLESS.search(line)]

    @contextmanager
    def is_told_in(self, count: int, bystander_latency_s: float = LATENCY_S) -> Iterator[None]:
        """The block makes trouble: a bystander notices nothing, and the log says `count` lines about it, no more."""
        with Bystander(self._broker.address, bystander_latency_s):
            yield
        eventually(lambda: len(self.lines()) >= count, f"{count} lines about the trouble", within_s=10)
        if count == 0:
            time.sleep(_SETTLED_S)  # nothing to wait for: give a line that should not come the time to come
        assert len(self.lines()) == count, "\n".join(self.lines())
