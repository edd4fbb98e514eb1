"""Synchronous and asynchronous commits of the application's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.client.errors import HoldfastError, RequestTimedOut, from_failure
from holdfast.client.membership_thread import MembershipThread
from holdfast.membership.effects import CommitCompleted
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.types import TopicPartition

OnCommit = Callable[
    [HoldfastError | None, Mapping[TopicPartition, OffsetAndMetadata], Mapping[TopicPartition, HoldfastError]], None
]

_GRACE_S = 1.0
"""Added to the commit's own timeout. By then the membership's thread has completed it, unless it is blocked."""
_LIVENESS_CHECK_S = 0.5
"""How often a synchronous commit checks that the membership's thread is alive."""


class CommitSender:
    """Used by the application's thread. The callbacks of asynchronous commits run in `run_callbacks`."""

    def __init__(self, membership_thread: MembershipThread) -> None:
        self._clock = membership_thread.clock
        self._membership_thread = membership_thread
        self._callbacks: deque[Callable[[], None]] = deque()
        self._last_sent: threading.Event | None = None

    def commit_sync(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int
    ) -> dict[TopicPartition, HoldfastError]:
        """Commit and wait. Returns the errors of single partitions; raises a failure of the whole commit."""
        done = threading.Event()
        outcome: list[CommitCompleted] = []

        def on_completed(end: CommitCompleted) -> None:
            outcome.append(end)
            done.set()

        self._membership_thread.commit(offsets, timeout_ms, on_completed)
        deadline = self._clock.now() + timeout_ms / 1000 + _GRACE_S
        while not self._clock.wait(done, min(_LIVENESS_CHECK_S, max(0.0, deadline - self._clock.now()))):
            if not self._membership_thread.is_alive and not done.is_set():
                raise HoldfastError("the offsets were not stored: the membership has ended; poll() says why")
            if self._clock.now() < deadline:
                continue
            raise RequestTimedOut(f"no answer to a commit within {timeout_ms} ms; whether it was stored is not known")
        if outcome[0].failure is not None:
            raise from_failure(outcome[0].failure)
        return _errors(outcome[0])

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int, on_commit: OnCommit
    ) -> None:
        """Commit and return. `run_callbacks` calls `on_commit`."""

        done = threading.Event()

        def on_completed(end: CommitCompleted) -> None:
            failure = None if end.failure is None else from_failure(end.failure)
            self._callbacks.append(lambda: on_commit(failure, offsets, _errors(end)))
            done.set()

        self._last_sent = done
        self._membership_thread.commit(offsets, timeout_ms, on_completed)

    def flush(self, deadline: float) -> None:
        """Wait until the commits are complete, because they fail when the member leaves."""
        last, self._last_sent = self._last_sent, None
        while last is not None and self._membership_thread.is_alive and self._clock.now() < deadline:
            if self._clock.wait(last, min(_LIVENESS_CHECK_S, max(0.0, deadline - self._clock.now()))):
                return

    def run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()


def _errors(end: CommitCompleted) -> dict[TopicPartition, Any]:
    return {where: from_failure(failure) for where, failure in end.errors.items()}
