"""The phases of a member's life, which may follow which, and in which of them it heartbeats.

What the phase does not say is whether a coordinator is known: a member whose coordinator moved keeps its seat and its
phase while it looks for the new one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    OUT = "out"
    """Wants no seat: before the first subscription and after leaving."""
    PREPARING = "preparing"
    """The application gives up what it must before it joins (see `effects.Prepare`)."""
    JOINING = "joining"
    """JoinGroup is to be sent, or is parked at the coordinator until the others are there."""
    LEADING = "leading"
    """In the new generation, as its leader: the application decides who gets what (see `effects.Lead`)."""
    SYNCING = "syncing"
    """In the new generation; SyncGroup is to be sent, or is parked until the leader has spoken."""
    STABLE = "stable"
    """Has its assignment."""
    AWAY = "away"
    """Gave up its seat because the application stopped polling; joins again when it polls."""
    OVER = "over"
    """Failed for good, or closed. Nothing follows."""


NEXT: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.OUT: frozenset({Phase.PREPARING, Phase.OVER}),
    Phase.PREPARING: frozenset({Phase.JOINING, Phase.AWAY, Phase.OUT, Phase.OVER}),
    Phase.JOINING: frozenset({Phase.LEADING, Phase.SYNCING, Phase.PREPARING, Phase.AWAY, Phase.OUT, Phase.OVER}),
    Phase.LEADING: frozenset({Phase.SYNCING, Phase.JOINING, Phase.PREPARING, Phase.AWAY, Phase.OUT, Phase.OVER}),
    Phase.SYNCING: frozenset({Phase.STABLE, Phase.JOINING, Phase.PREPARING, Phase.AWAY, Phase.OUT, Phase.OVER}),
    Phase.STABLE: frozenset({Phase.PREPARING, Phase.AWAY, Phase.OUT, Phase.OVER}),
    Phase.AWAY: frozenset({Phase.PREPARING, Phase.OUT, Phase.OVER}),
    Phase.OVER: frozenset(),
}

HEARTBEATS: Final = frozenset({Phase.PREPARING, Phase.LEADING, Phase.SYNCING, Phase.STABLE})
"""None while a join is outstanding: the coordinator keeps a member whose join it has parked. A member that was told of
a rebalance goes on until its application has given up what it must."""

POLLING: Final = frozenset({Phase.PREPARING, Phase.JOINING, Phase.LEADING, Phase.SYNCING, Phase.STABLE})
"""The application must poll in time."""
