"""The numbers by which a life is judged; `docs/pipelines.md` says what each means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    since_ms: int | None = None
    """What was over before is not told, though it was read: who owned what then has to be known."""
    until_ms: int | None = None
    flap_times: int = 3
    flap_within_ms: int = 600_000
    scale_up_within_ms: int = 60_000
    takeover_ms: int = 10_000
    heartbeat_ms: int = 3_000
    """A standby hears of an open place with its next heartbeat."""
    session_ms: int = 45_000
    """Of members whose own is not known; the default of Kafka's clients."""
