"""All connections: their limits, their idle and authentication timeouts, and their shutdown."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from holdfast.broker.api.request import ClientSession
from holdfast.broker.authorization.user_changes import Session
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.network.environment import ManagedConnection
from holdfast.broker.network.request_memory import RequestMemory
from holdfast.broker.network.shutdown import drain

logger = logging.getLogger(__name__)


class Connections:
    def __init__(
        self,
        config: DynamicBrokerConfig,
        clock: PauseAwareClock,
        memory: RequestMemory,
        on_closed: Callable[[ClientSession], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._memory = memory
        self._on_closed = on_closed
        self._all: set[ManagedConnection] = set()
        self._per_host: Counter[str] = Counter()
        self._unauthenticated: dict[ManagedConnection, None] = {}
        """In the order of arrival."""

    def __iter__(self) -> Iterator[ManagedConnection]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: ManagedConnection) -> str | None:
        """Adds a new connection. Returns the reason if it is rejected."""
        config = self._config.current
        if len(self._all) >= config.max_connections:
            return f"there are max.connections ({config.max_connections}) already"
        host = connection.session.client_host
        if self._per_host[host] >= config.max_connections_per_ip:
            return f"{host} has max.connections.per.ip ({config.max_connections_per_ip}) already"
        self._all.add(connection)
        self._per_host[host] += 1
        if connection.needs_authentication:
            self._track_unauthenticated(connection)
        return None

    def _track_unauthenticated(self, connection: ManagedConnection) -> None:
        config = self._config.current
        if len(self._unauthenticated) >= config.max_unauthenticated_connections:
            # Closes the oldest one: clients that can authenticate do so at once, so it is the least likely to succeed.
            oldest = next(iter(self._unauthenticated))
            limit = config.max_unauthenticated_connections
            oldest.close(f"more than max.unauthenticated.connections ({limit}) have not authenticated")
            self.authenticated(oldest)
        self._unauthenticated[connection] = None
        timeout_ms = config.authentication_timeout_ms
        reason = f"it has not authenticated within authentication.timeout.ms ({timeout_ms})"
        connection.authentication_timer = self._clock.call_later(timeout_ms / 1000, partial(connection.close, reason))

    def authenticated(self, connection: ManagedConnection) -> None:
        """It has authenticated, or is closed."""
        self._unauthenticated.pop(connection, None)
        if connection.authentication_timer is not None:
            connection.authentication_timer.cancel()
            connection.authentication_timer = None

    def connection_closed(self, connection: ManagedConnection) -> None:
        self.authenticated(connection)
        self._memory.forget(connection)
        self._on_closed(connection.session)
        if connection in self._all:
            self._all.remove(connection)
            self._per_host[connection.session.client_host] -= 1
            if not self._per_host[connection.session.client_host]:
                del self._per_host[connection.session.client_host]

    def close_idle(self, idle_seconds: float) -> None:
        """Connections with a parked request are not idle: the client waits for the broker."""
        now = self._clock.now()
        for connection in tuple(self._all):
            if now - connection.last_active > idle_seconds and not connection.parked:
                logger.info("closing the idle connection of %s", connection.session.client_host)
                connection.close(None)

    def end_sessions(self, principals: frozenset[str], but: Session | None) -> None:
        """Closes the connections of these users, except `but`, and all connections that are authenticating."""
        for connection in tuple(self._all) if principals else ():
            if connection.session is but:
                continue
            if connection.session.principal in principals:
                connection.close(f"{connection.session.principal} was removed or has a new password")
            elif connection.session.sasl_exchange is not None:
                connection.close("passwords changed while it was authenticating")

    async def drain(self) -> None:
        """Closes all connections; requests that are being answered get their replies first."""
        await drain(self._all)
