"""A running listener: its bound socket, its advertised address, and its security settings."""

from __future__ import annotations

import socket

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.listeners import Listener
from holdfast.broker.config.security import ListenerSecurity, TlsSettings
from holdfast.broker.network.acceptor import Acceptor
from holdfast.broker.network.tls_context import TlsContext


class BoundListener:
    def __init__(
        self,
        listener: Listener,
        settings: ListenerSecurity,
        advertised: Listener | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        self.config = listener
        self.tls = tls
        self.mechanisms = settings.mechanisms
        self._advertised = advertised
        self.socket: socket.socket | None = None
        self.acceptor: Acceptor | None = None
        self.address = (listener.host, listener.port)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def advertised(self) -> tuple[str, int]:
        """The address that is advertised to its clients."""
        if self._advertised is not None:
            return self._advertised.host, self._advertised.port
        host, port = self.address
        return (socket.gethostname() if self.config.is_wildcard else host), port

    @property
    def allows_anonymous(self) -> bool:
        """Clients are served without authentication."""
        return not self.mechanisms and (self.tls is None or not self.tls.requires_client_certificate)

    def bind(self) -> None:
        """Binds the port; raises OSError if that is not possible."""
        host, port = self.config.host, self.config.port
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            # The port can be bound again at once, although connections of the last broker linger in TIME_WAIT.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        self.socket = bound
        self.address = host, bound.getsockname()[1]

    def close(self) -> None:
        if self.acceptor is not None:
            self.acceptor.close()
        elif self.socket is not None:
            self.socket.close()


def create_bound_listeners(config: BrokerConfig) -> list[BoundListener]:
    """Raises `ConfigError` for an unusable certificate. Do not call this on the event loop: it reads files."""
    bound = []
    read: dict[TlsSettings, TlsContext] = {}
    for listener in config.listeners:
        settings = config.security.listeners[listener.name]
        tls = None
        if settings.tls is not None:
            tls = read[settings.tls] = read.get(settings.tls) or TlsContext(settings.tls)
        bound.append(BoundListener(listener, settings, config.advertised_listeners.get(listener.name), tls))
    return bound
