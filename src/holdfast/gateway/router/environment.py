"""The environment that all connections of the router share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.broker.api.request import ClientSession, ListenerInfo
from holdfast.broker.network.request_memory import MemoryOwner, RequestMemory
from holdfast.broker.network.shutdown import Drainable
from holdfast.gateway.router.channel import READ_BYTES
from holdfast.gateway.router.dialer import Dialer
from holdfast.gateway.router.limited_log import LimitedLog
from holdfast.gateway.router.ports import Brokers, GroupRequests
from holdfast.gateway.router.settings import RouterSettings

MakeSession = Callable[[ListenerInfo, Callable[[], None]], ClientSession]
"""Given the listener, and what to call when the client has authenticated."""


class ManagedConnection(MemoryOwner, Drainable, Protocol):
    """A connection as its owner sees it."""

    session: ClientSession

    @property
    def activity(self) -> int:
        """Changes whenever a byte was read or sent."""

    @property
    def is_waiting(self) -> bool:
        """The client waits for a response, and reads what is sent to it."""

    @property
    def needs_authentication(self) -> bool:
        """The TLS handshake or the SASL exchange is not complete."""


class ConnectionOwner(Protocol):
    """Owns all connections of the router."""

    def admit(self, connection: ManagedConnection) -> str | None:
        """Adds a new connection. Returns the reason if it is rejected."""

    def connection_closed(self, connection: ManagedConnection) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterEnvironment:
    """The objects that all connections share."""

    loop: asyncio.AbstractEventLoop
    settings: RouterSettings
    brokers: Brokers
    requests: GroupRequests
    owner: ConnectionOwner
    dialer: Dialer
    log: LimitedLog
    memory: RequestMemory
    highest_versions: Mapping[int, int]
    """By API key: the versions that clients may use."""
    make_session: MakeSession
    on_topics_changed: Callable[[], None]
    kept_api_versions: dict[int, bytes] = field(default_factory=dict)
    """Kafka's last response to each version of ApiVersions."""
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
