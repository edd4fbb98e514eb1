"""The settings of a member. All times are in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _no_jitter() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    group_id: str
    protocol_type: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """How long the application may be busy between two polls, and therefore how long a rebalance waits for it."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fall_back_to_dynamic: bool = False
    """Whether to join without the instance id if the broker has no static members, instead of failing."""
    jitter: Callable[[], float] = _no_jitter
    """Returns a number from -1 to 1 for each backoff, so that members do not retry at the same time."""

    @property
    def join_timeout_ms(self) -> int:
        """The coordinator responds to a join when all members have joined, up to the rebalance timeout. Closing the
        connection earlier would undo the join."""
        return max(self.request_timeout_ms, self.max_poll_interval_ms + 5_000)
