"""Accepting connections.

libuv (since 1.46) accepts one connection in each iteration of the loop. An iteration that serves a thousand members
takes a tenth of a second, so accepting a thousand members that start together would take minutes, and each of them
would make the earlier ones rebalance again. Here each iteration accepts all waiting connections, up to a bound.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.structured_log import log_event

logger = logging.getLogger(__name__)

MAX_ACCEPTS_PER_EVENT: Final = 128
"""Connections accepted in one iteration of the loop: some milliseconds of work."""
RETRY_SECONDS: Final = 0.1
"""The delay before the next attempt after an accept failed. Until then the peer waits in the backlog."""


class Acceptor:
    """Listens on a bound socket, and closes it in the end."""

    def __init__(self, listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        """Raises OSError if another process listens there."""
        self._listener.listen(backlog)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)
        host, port = self._listener.getsockname()[:2]
        log_event(logger, "listening", host=host, port=port)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        for task in self._starting:
            task.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS_PER_EVENT):
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._start_connection(peer)

    def _start_connection(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, peer))
        self._starting.add(task)
        task.add_done_callback(self._connection_started)

    def _connection_started(self, task: asyncio.Task[Any]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("cannot accept a connection: %s", error)

    def _pause(self, error: OSError) -> None:
        """Usually the process has no file descriptors left. The socket stays readable, so it is not watched for a
        moment."""
        logger.warning("cannot accept connections: %s", error.strerror)
        self._loop.remove_reader(self._listener.fileno())
        self._retry = self._loop.call_later(RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)
