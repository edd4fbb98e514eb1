"""Closing all connections at shutdown: requests that are being served get their replies first.

Without the reply, a client would not know whether its produce was flushed or its topic created. Shutdown does not wait
for requests that wait for other clients (a long poll, a join).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from holdfast.broker.structured_log import log_event

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""The maximum wait for a slow disk or a client that does not read."""
_POLL_SECONDS: Final = 0.005


class Drainable(Protocol):
    """A connection at shutdown."""

    @property
    def has_reply_in_flight(self) -> bool: ...
    def start_draining(self) -> None: ...
    def close(self, reason: str | None) -> None: ...


async def drain(connections: AbstractSet[Drainable], patience_seconds: float = DRAIN_SECONDS) -> None:
    """Closes all connections; no new one may be accepted meanwhile."""
    until = time.monotonic() + patience_seconds
    for connection in tuple(connections):
        connection.start_draining()
    # Polled rather than signalled: it happens once, and adds nothing to the path of a request.
    while any(connection.has_reply_in_flight for connection in connections) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)
    left = sum(connection.has_reply_in_flight for connection in connections)
    if left:
        log_event(logger, "connections closed without a reply", logging.WARNING, connections=left)
    for connection in tuple(connections):
        connection.close(None)
