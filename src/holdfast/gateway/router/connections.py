"""All connections of the router: their limit, their idle and authentication timeouts, and their shutdown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final

from holdfast.broker.network.request_memory import RequestMemory
from holdfast.broker.network.shutdown import drain
from holdfast.gateway.router.environment import ManagedConnection
from holdfast.gateway.router.settings import RouterSettings

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
MIN_SWEEP_SECONDS: Final = 0.02


class _Watched:
    __slots__ = ("accepted", "active", "activity")

    def __init__(self, now: float) -> None:
        self.accepted = now
        self.active = now
        self.activity = -1


class Connections:
    def __init__(self, loop: asyncio.AbstractEventLoop, settings: RouterSettings, memory: RequestMemory) -> None:
        self._loop = loop
        self._settings = settings
        self._memory = memory
        self._all: dict[ManagedConnection, _Watched] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[ManagedConnection]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: ManagedConnection) -> str | None:
        """Adds a new connection. Returns the reason if it is rejected."""
        limit = self._settings.max_connections
        if len(self._all) >= limit:
            return f"there are max.connections ({limit}) already"
        self._all[connection] = _Watched(time.monotonic())
        return None

    def connection_closed(self, connection: ManagedConnection) -> None:
        self._all.pop(connection, None)

    def start(self) -> None:
        shortest_ms = min(self._settings.max_idle_ms, self._settings.authentication_timeout_ms)
        interval = min(SWEEP_SECONDS, max(MIN_SWEEP_SECONDS, shortest_ms / 4000))
        self._sweeping = self._loop.call_later(interval, self._sweep, interval)

    def _sweep(self, interval: float) -> None:
        self._sweeping = self._loop.call_later(interval, self._sweep, interval)
        now = time.monotonic()
        self._memory.evict_stalled(now)
        for connection, watched in tuple(self._all.items()):
            self._check(connection, watched, now)

    def _check(self, connection: ManagedConnection, watched: _Watched, now: float) -> None:
        """A client that waits for a response is not idle. One that does not read its response is."""
        activity = connection.activity
        if activity != watched.activity or connection.is_waiting:
            watched.activity, watched.active = activity, now
        timeout_ms = self._settings.authentication_timeout_ms
        if (now - watched.accepted) * 1000 > timeout_ms and connection.needs_authentication:
            connection.close(f"it has not authenticated within authentication.timeout.ms ({timeout_ms})")
        elif 0 <= self._settings.max_idle_ms < (now - watched.active) * 1000:
            logger.info("closing the idle connection of %s", connection.session.client_host)
            connection.close(None)

    async def drain(self) -> None:
        """Closes all connections; requests that have begun get their responses first."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await drain(self._all.keys(), self._settings.drain_ms / 1000)
