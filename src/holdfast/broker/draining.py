"""The end of all connections: what is being answered is answered first.

A produce that waits for its flush, a topic that is being created: its client is told before the connection ends, or it
would have to ask what became of it. Nobody is kept waiting for other clients, though: a long poll, a join.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from holdfast.broker.log_lines import say

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""A disk that takes longer than this to flush, or a client that does not read, is not waited for."""
_LOOK_SECONDS: Final = 0.005


class Served(Protocol):
    """A connection, as it is at its end."""

    @property
    def awaits_an_answer(self) -> bool: ...
    def serve_out(self) -> None: ...
    def close(self, reason: str | None) -> None: ...


async def drain(connections: AbstractSet[Served], patience_seconds: float = DRAIN_SECONDS) -> None:
    """Ends all connections; nobody may come in meanwhile."""
    until = time.monotonic() + patience_seconds
    for connection in tuple(connections):
        connection.serve_out()
    # Asked again and again rather than told: it is once in a life, and the way of a request stays as short as it is.
    while any(connection.awaits_an_answer for connection in connections) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_SECONDS)
    left = sum(connection.awaits_an_answer for connection in connections)
    if left:
        say(logger, "connections ended without an answer", logging.WARNING, connections=left)
    for connection in tuple(connections):
        connection.close(None)
