"""The phases of a member, their transitions, and the phases in which it sends heartbeats.

Whether the coordinator is connected is not part of the phase: a member whose coordinator has moved keeps its generation
and its phase while it looks for the new one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    UNJOINED = "unjoined"
    """Not in the group: before the first subscription and after leaving."""
    PREPARING = "preparing"
    """The application revokes partitions before the join (see `effects.JoinPrepare`)."""
    JOINING = "joining"
    """JoinGroup is to be sent, or the coordinator waits for the other members."""
    LEADING = "leading"
    """Leader of the new generation: the application assigns (see `effects.LeaderElected`)."""
    SYNCING = "syncing"
    """In the new generation: SyncGroup is to be sent, or the coordinator waits for the leader's."""
    STABLE = "stable"
    """Has its assignment."""
    POLL_EXPIRED = "poll expired"
    """Left the group because the application stopped polling; rejoins when it polls."""
    CLOSED = "closed"
    """Failed, or closed by the application. Final."""


TRANSITIONS: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.UNJOINED: frozenset({Phase.PREPARING, Phase.CLOSED}),
    Phase.PREPARING: frozenset({Phase.JOINING, Phase.POLL_EXPIRED, Phase.UNJOINED, Phase.CLOSED}),
    Phase.JOINING: frozenset(
        {Phase.LEADING, Phase.SYNCING, Phase.PREPARING, Phase.POLL_EXPIRED, Phase.UNJOINED, Phase.CLOSED}
    ),
    Phase.LEADING: frozenset(
        {Phase.SYNCING, Phase.JOINING, Phase.PREPARING, Phase.POLL_EXPIRED, Phase.UNJOINED, Phase.CLOSED}
    ),
    Phase.SYNCING: frozenset(
        {Phase.STABLE, Phase.JOINING, Phase.PREPARING, Phase.POLL_EXPIRED, Phase.UNJOINED, Phase.CLOSED}
    ),
    Phase.STABLE: frozenset({Phase.PREPARING, Phase.POLL_EXPIRED, Phase.UNJOINED, Phase.CLOSED}),
    Phase.POLL_EXPIRED: frozenset({Phase.PREPARING, Phase.UNJOINED, Phase.CLOSED}),
    Phase.CLOSED: frozenset(),
}

HEARTBEATS: Final = frozenset({Phase.PREPARING, Phase.LEADING, Phase.SYNCING, Phase.STABLE})
"""Not while a join is in flight, because a pending join keeps the membership without heartbeats. During a rebalance, a
member continues to send heartbeats until its application has revoked its partitions."""

MUST_POLL: Final = frozenset({Phase.PREPARING, Phase.JOINING, Phase.LEADING, Phase.SYNCING, Phase.STABLE})
"""The application must poll within max.poll.interval.ms."""
