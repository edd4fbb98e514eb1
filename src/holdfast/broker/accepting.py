"""Taking in new connections.

libuv (since 1.46) accepts one connection with every turn of the loop. A turn in which a thousand members are served
takes a tenth of a second, so a thousand members that start together would be let in one after the other over minutes,
and each of them would make those before it rebalance again. Here every turn takes in all that wait, up to a bound.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.log_lines import say

logger = logging.getLogger(__name__)

AT_ONCE: Final = 128
"""Connections taken in with one turn of the loop: some milliseconds of work."""
RETRY_SECONDS: Final = 0.1
"""When to try again after the system had no room for a connection: its peer waits in the backlog until then."""


class Acceptor:
    """Listens on a bound socket, which it closes at its end."""

    def __init__(self, listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        """Raises OSError when somebody else listens there."""
        self._listener.listen(backlog)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)
        host, port = self._listener.getsockname()[:2]
        say(logger, "listening", host=host, port=port)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        for task in self._beginning:
            task.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._begin(peer)

    def _begin(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, peer))
        self._beginning.add(task)
        task.add_done_callback(self._begun)

    def _begun(self, task: asyncio.Task[Any]) -> None:
        self._beginning.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a connection could not be taken in: %s", error)

    def _pause(self, error: OSError) -> None:
        """Usually no file descriptor is left. The socket stays readable, so we look away for a moment."""
        logger.warning("cannot take in connections: %s", error.strerror)
        self._loop.remove_reader(self._listener.fileno())
        self._retry = self._loop.call_later(RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)
