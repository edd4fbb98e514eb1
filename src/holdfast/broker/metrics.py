"""The interface for metrics of requests, group events, the event loop, flushes and compactions.

Without an implementation (`NO_METRICS`), requests are not timed.
"""

from __future__ import annotations

from typing import Final, Protocol


class Metrics(Protocol):
    """All methods except `compacted` are called in the event loop's thread. They must return at once."""

    @property
    def is_enabled(self) -> bool:
        """Read once. If False, requests and group events are not reported."""

    def request_served(self, api: str, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """A request was answered; `seconds` is the time from its last byte to the reply, including all waits."""

    def group_event(self, kind: str, cause: str) -> None:
        """An event of a group was emitted; `cause` is the code of its cause."""

    def loop_lagged(self, seconds: float) -> None:
        """How late the event loop's tick was."""

    def flushed(self, partitions: int, seconds: float) -> None:
        """One round of flushing, which many appends may share."""

    def compacted(self, partition: str, seconds: float) -> None:
        """One log was compacted. Called in a worker thread."""


class NoMetrics:
    """Discards all metrics."""

    is_enabled: Final = False

    def request_served(self, api: str, seconds: float, bytes_in: int, bytes_out: int) -> None: ...

    def group_event(self, kind: str, cause: str) -> None: ...

    def loop_lagged(self, seconds: float) -> None: ...

    def flushed(self, partitions: int, seconds: float) -> None: ...

    def compacted(self, partition: str, seconds: float) -> None: ...


NO_METRICS: Final[Metrics] = NoMetrics()
