"""What a member is told once: its group, how it is called, and how patient it is. All times in milliseconds."""

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
    """Whether to join without the instance id where the broker knows none, rather than to refuse."""
    jitter: Callable[[], float] = _no_jitter
    """A number from -1 to 1, drawn anew for each back-off, so that members do not come back in step."""

    @property
    def join_timeout_ms(self) -> int:
        """A join is parked while the others come, up to the rebalance time-out: hanging up earlier would undo it."""
        return max(self.request_timeout_ms, self.max_poll_interval_ms + 5_000)
