"""The environment that all connections share, and the interfaces between a connection and its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.broker.api.registry import Handler
from holdfast.broker.api.replies import Disconnect
from holdfast.broker.api.request import ClientSession
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.clock import PauseAwareClock, Timer
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.metrics import NO_METRICS, Metrics
from holdfast.broker.network.framing import SCRATCH_BYTES
from holdfast.broker.network.reply_writer import ReplyRound
from holdfast.broker.network.request_memory import MemoryOwner, RequestMemory
from holdfast.broker.network.shutdown import Drainable
from holdfast.broker.util.slices import SliceScheduler


class ManagedConnection(MemoryOwner, Drainable, Protocol):
    """A connection as its owner sees it."""

    session: ClientSession
    last_active: float
    """On the broker's clock."""
    authentication_timer: Timer | None
    """Closes the connection if it has not authenticated in time; `Connections` keeps it here."""

    @property
    def needs_authentication(self) -> bool: ...

    @property
    def parked(self) -> bool:
        """A request waits for its answer."""


class ConnectionOwner(Protocol):
    """Owns all connections of the broker."""

    def admit(self, connection: ManagedConnection) -> str | None:
        """Adds a new connection. Returns the reason if it is rejected."""

    def authenticated(self, connection: ManagedConnection) -> None: ...

    def connection_closed(self, connection: ManagedConnection) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEnvironment:
    """The objects that all connections share."""

    owner: ConnectionOwner
    services: Services
    handlers: Mapping[int, Handler]
    pre_auth_handlers: Mapping[int, Handler]
    """For clients that have not authenticated yet."""
    unsupported_api_versions: Handler
    """For an ApiVersions request of a version that is not served (KIP-511)."""
    authorizer: Authorizer | None
    config: DynamicBrokerConfig
    clock: PauseAwareClock
    slices: SliceScheduler
    memory: RequestMemory
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))
    replies: ReplyRound = field(default_factory=ReplyRound)
    metrics: Metrics = NO_METRICS

    def not_served(self, api_key: int) -> Disconnect:
        """Why a request has no handler."""
        handler = self.handlers.get(api_key)
        if handler is not None:
            return Disconnect(f"{handler.api.name} before authentication")
        return Disconnect(f"unknown API key {api_key}")
