"""Offsets on their way to the group: what to commit, and who is told how it ended."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.client.driver import Driver
from holdfast.client.errors import HoldfastError, RequestTimedOut
from holdfast.client.outcomes import exception
from holdfast.membership.effects import CommitEnded
from holdfast.membership.requests import Offset

Where = tuple[str, int]
OnCommit = Callable[[HoldfastError | None, Mapping[Where, Offset], Mapping[Where, HoldfastError]], None]

_GRACE_S = 1.0
"""Beyond the commit's own time-out: the driver ends it by then, unless it is held up itself."""
_LOOK_S = 0.5
"""How often a waiting commit looks whether the driver still lives."""


class Commits:
    """Made by the application's thread. Asynchronous ones are told to it when it comes by (`tell`)."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._ended: deque[Callable[[], None]] = deque()
        self._last_sent: threading.Event | None = None

    def wait_for(self, offsets: Mapping[Where, Offset], timeout_ms: int) -> dict[Where, HoldfastError]:
        """Commit and wait. Returns what failed of it alone; raises what failed for all of it."""
        done = threading.Event()
        outcome: list[CommitEnded] = []

        def ended(end: CommitEnded) -> None:
            outcome.append(end)
            done.set()

        self._driver.commit(offsets, timeout_ms, ended)
        deadline = time.monotonic() + timeout_ms / 1000 + _GRACE_S
        while not done.wait(min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
            if not self._driver.is_alive and not done.is_set():
                raise HoldfastError("the offsets were not stored: the membership has ended; poll() says why")
            if time.monotonic() < deadline:
                continue
            raise RequestTimedOut(f"no answer to a commit within {timeout_ms} ms; whether it was stored is not known")
        if outcome[0].failure is not None:
            raise exception(outcome[0].failure)
        return _errors(outcome[0])

    def send(self, offsets: Mapping[Where, Offset], timeout_ms: int, on_commit: OnCommit) -> None:
        """Commit and go on. `on_commit` is called by `tell`."""

        done = threading.Event()

        def ended(end: CommitEnded) -> None:
            failure = None if end.failure is None else exception(end.failure)
            self._ended.append(lambda: on_commit(failure, offsets, _errors(end)))
            done.set()

        self._last_sent = done
        self._driver.commit(offsets, timeout_ms, ended)

    def settle(self, deadline: float) -> None:
        """Wait until what was sent has ended: a member that goes takes its unanswered commits with it."""
        last, self._last_sent = self._last_sent, None
        while last is not None and self._driver.is_alive and time.monotonic() < deadline:
            if last.wait(min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
                return

    def tell(self) -> None:
        while self._ended:
            self._ended.popleft()()


def _errors(end: CommitEnded) -> dict[Where, Any]:
    return {where: exception(failure) for where, failure in end.errors.items()}
