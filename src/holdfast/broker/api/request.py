"""A request as handlers see it: its client, its version and its client id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.broker.authorization.authorizer import ClientPermissions
from holdfast.broker.authorization.sasl import SaslExchange
from holdfast.broker.authorization.visibility import EVERYTHING, Visibility
from holdfast.coordinator.classic.member import Client

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name for clients that are not authenticated."""


class ListenerInfo(Protocol):
    """The properties of the client's listener that handlers may use."""

    mechanisms: tuple[str, ...]
    """SASL mechanisms; empty if the listener does not use SASL."""

    @property
    def name(self) -> str: ...

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that its clients connect to."""


class PermissionSource(Protocol):
    def permissions_of(self, principal: str, host: str) -> ClientPermissions: ...


class ClientSession:
    """The client of one connection: its address, its principal and its permissions."""

    __slots__ = (
        "_authorizer",
        "_on_authenticated",
        "_permissions",
        "client_host",
        "client_software",
        "group_client",
        "listener",
        "principal",
        "sasl_exchange",
        "throttled_until",
    )

    def __init__(
        self, listener: ListenerInfo, authorizer: PermissionSource | None, on_authenticated: Callable[[], None]
    ) -> None:
        self._authorizer = authorizer
        self._on_authenticated = on_authenticated
        self._permissions: ClientPermissions | None = None
        self.listener = listener
        self.client_host = "?"
        self.client_software = ""
        """From the last ApiVersions request."""
        self.principal = ANONYMOUS
        self.sasl_exchange: SaslExchange | None = None
        """The authentication in progress."""
        self.group_client: Client | None = None
        """The client of group requests; `GroupCoordinatorService` keeps it here."""
        self.throttled_until = 0.0
        """When its next long request may start; `SliceScheduler` keeps it here."""

    @property
    def permissions(self) -> ClientPermissions | None:
        """None if the broker has no authorizer."""
        if self._permissions is None and self._authorizer is not None:
            self._permissions = self._authorizer.permissions_of(self.principal, self.client_host)
        return self._permissions

    def authenticated(self, principal: str | None) -> None:
        """From now on, all requests that the principal is authorized for are served."""
        self.principal = principal or ANONYMOUS
        self._permissions = None
        self.sasl_exchange = None
        self._on_authenticated()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Requests of one connection that have the same header share it."""

    session: ClientSession
    api_version: int
    client_id: str | None
    visibility: Visibility = EVERYTHING
    """What the response may contain; the check of the API restricts it."""

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def advertised(self) -> tuple[str, int]:
        """The address that this client connects to. Each listener has its own."""
        return self.session.listener.advertised
