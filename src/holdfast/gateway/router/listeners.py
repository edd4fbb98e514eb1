"""The router's ports: one for each broker, and one for the first connection of a client."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from holdfast.broker.network.acceptor import Acceptor
from holdfast.client.addresses import Address

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
HIGHEST_PORT: Final = 65_535

StartConnection = Callable[[int | None, socket.socket], None]
"""Given the broker of the port, None for the bootstrap port, and the socket of a new client."""


class SocketAcceptor(Acceptor):
    """Accepts connections as the broker does, and passes their sockets on, because the router needs no transports."""

    def __init__(self, listener: socket.socket, start: Callable[[socket.socket], None]) -> None:
        super().__init__(listener, asyncio.Protocol)
        self._start = start

    def _start_connection(self, peer: socket.socket) -> None:
        try:
            self._start(peer)
        except Exception:
            logger.exception("cannot serve a new connection")
            peer.close()


class Listeners:
    def __init__(self, listen: Address, start_connection: StartConnection) -> None:
        self._listen = listen
        self._start_connection = start_connection
        self._acceptors: dict[int | None, Acceptor] = {}

    def port_of(self, node_id: int | None) -> int:
        return self._listen.port if node_id is None else self._listen.port + 1 + node_id

    def open(self, node_id: int | None) -> None:
        """Opens the port of this broker, unless it is open. Raises OSError."""
        if node_id in self._acceptors:
            return
        port = self.port_of(node_id)
        if port > HIGHEST_PORT:
            raise OSError(f"broker {node_id} needs port {port}, which does not exist: choose a lower port to listen on")
        bound = _bind(self._listen.host, port)
        acceptor = SocketAcceptor(bound, lambda peer: self._start_connection(node_id, peer))
        try:
            acceptor.start(BACKLOG)
        except OSError:
            acceptor.close()
            raise
        self._acceptors[node_id] = acceptor

    def close(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._acceptors.clear()


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # The port can be bound again at once, although connections of the last gateway linger in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {Address(host, port)}: {error.strerror}") from error
    return bound
