"""Offsets on their way to the group: what to commit, and who is told how it ended."""

from __future__ import annotations

import threading
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


class Commits:
    """Made by the application's thread. Asynchronous ones are told to it when it comes by (`tell`)."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._ended: deque[Callable[[], None]] = deque()

    def wait_for(self, offsets: Mapping[Where, Offset], timeout_ms: int) -> dict[Where, HoldfastError]:
        """Commit and wait. Returns what failed of it alone; raises what failed for all of it."""
        done = threading.Event()
        outcome: list[CommitEnded] = []

        def ended(end: CommitEnded) -> None:
            outcome.append(end)
            done.set()

        self._driver.commit(offsets, timeout_ms, ended)
        if not done.wait(timeout_ms / 1000 + _GRACE_S):
            raise RequestTimedOut(f"no answer to a commit within {timeout_ms} ms; whether it was stored is not known")
        if outcome[0].failure is not None:
            raise exception(outcome[0].failure)
        return _errors(outcome[0])

    def send(self, offsets: Mapping[Where, Offset], timeout_ms: int, on_commit: OnCommit) -> None:
        """Commit and go on. `on_commit` is called by `tell`."""

        def ended(end: CommitEnded) -> None:
            failure = None if end.failure is None else exception(end.failure)
            self._ended.append(lambda: on_commit(failure, offsets, _errors(end)))

        self._driver.commit(offsets, timeout_ms, ended)

    def tell(self) -> None:
        while self._ended:
            self._ended.popleft()()


def _errors(end: CommitEnded) -> dict[Where, Any]:
    return {where: exception(failure) for where, failure in end.errors.items()}
