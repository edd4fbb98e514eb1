"""The broker's listeners, as they are open: a bound socket, an address to tell, and what is asked of those who come."""

from __future__ import annotations

import socket

from holdfast.broker.accepting import Acceptor
from holdfast.broker.config import BrokerConfig
from holdfast.broker.listener import Listener
from holdfast.broker.security.settings import DoorSettings, TlsSettings
from holdfast.broker.security.tls import Tls


class Door:
    def __init__(
        self, listener: Listener, settings: DoorSettings, told: Listener | None = None, tls: Tls | None = None
    ) -> None:
        self.listener = listener
        self.tls = tls
        self.mechanisms = settings.mechanisms
        self._told = told
        self.socket: socket.socket | None = None
        self.acceptor: Acceptor | None = None
        self.address = (listener.host, listener.port)

    @property
    def advertised(self) -> tuple[str, int]:
        """Where clients that came in here are told to connect."""
        if self._told is not None:
            return self._told.host, self._told.port
        host, port = self.address
        return (socket.gethostname() if self.listener.is_wildcard else host), port

    @property
    def is_open_to_anybody(self) -> bool:
        """Whoever comes is served without saying who he is."""
        return not self.mechanisms and (self.tls is None or not self.tls.knows_clients)

    def bind(self) -> None:
        """Takes the port; raises OSError if that cannot be had."""
        host, port = self.listener.host, self.listener.port
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            # The port can be taken again at once, although connections of the last broker linger in TIME_WAIT.
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


def make_doors(config: BrokerConfig) -> list[Door]:
    """Raises `ConfigError` for a certificate that cannot be used. Reads files: not for the event loop."""
    doors = []
    read: dict[TlsSettings, Tls] = {}
    for listener in config.listeners:
        settings = config.security.doors[listener.name]
        tls = None
        if settings.tls is not None:
            tls = read[settings.tls] = read.get(settings.tls) or Tls(settings.tls)
        doors.append(Door(listener, settings, config.advertised_listeners.get(listener.name), tls))
    return doors
