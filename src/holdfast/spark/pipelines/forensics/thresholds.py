"""The thresholds of the analysis; `docs/pipelines.md` describes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForensicsThresholds:
    since_ms: int | None = None
    """Earlier records are read, because the owners must be known, but not reported."""
    until_ms: int | None = None
    flap_times: int = 3
    flap_within_ms: int = 600_000
    scale_up_within_ms: int = 60_000
    takeover_ms: int = 10_000
    heartbeat_ms: int = 3_000
    """A standby learns of a vacancy with its next heartbeat."""
    session_ms: int = 45_000
    """For members whose session timeout is unknown; the default of Kafka's clients."""
