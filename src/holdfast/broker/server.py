"""The broker: opens its data, listens, serves, and stops cleanly."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from pathlib import Path

import holdfast.broker.handlers  # noqa: F401  # registers every handler
from holdfast.broker.accepting import Acceptor
from holdfast.broker.changes import Changes
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config import BrokerConfig, ConfigError
from holdfast.broker.connection import Connection
from holdfast.broker.flusher import Flusher
from holdfast.broker.framing import SCRATCH_BYTES
from holdfast.broker.groups import Groups
from holdfast.broker.handlers.api_versions import unsupported_version
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.memory import MemoryPool
from holdfast.broker.producer_ids import ProducerIds
from holdfast.broker.topics import Topics, TopicsFileError
from holdfast.log import DataDirectory, LogError

logger = logging.getLogger(__name__)

BACKLOG = 1024
SWEEP_SECONDS = 1.0
"""How often idle and stalled connections are looked for."""


class BrokerError(Exception):
    """The broker cannot start; the text is one sentence for the operator."""


class Broker:
    def __init__(self, config: BrokerConfig, data: Path) -> None:
        self.config = config
        self._data_path = data
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.changes = Changes()
        self.memory = MemoryPool(config.queued_max_request_bytes)
        self.unsupported_api_versions = unsupported_version()
        self._connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._acceptor: Acceptor | None = None

    # -- what handlers ask for -----------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        return self.data.cluster_id

    @property
    def rack(self) -> str | None:
        return self.config.broker_rack

    @property
    def advertised(self) -> tuple[str, int]:
        """Where clients are told to connect."""
        told = self.config.advertised_listener
        if told is not None:
            return told.host, told.port
        listener = self.config.listener
        return (socket.gethostname() if listener.is_wildcard else listener.host), self.address[1]

    @staticmethod
    def now_ms() -> int:
        """Wall-clock time, for what is stored and shown; never for deadlines."""
        return time.time_ns() // 1_000_000

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the data and begins to listen. Raises BrokerError when the operator must act."""
        loop = asyncio.get_running_loop()
        listener = self._bind()
        try:
            await self._open_data()
        except BaseException:
            listener.close()
            raise
        self.clock = PauseAwareClock(loop)
        self.flusher = Flusher()
        self.housekeeping = Housekeeping(self)
        self.clock.start()
        self.housekeeping.start()
        self.groups = Groups(self)
        self.groups.start()
        self._sweep()
        try:
            self._acceptor = Acceptor(listener, lambda: Connection(self))
            self._acceptor.start(BACKLOG)
        except OSError as error:
            # Two sockets may be bound to one port until one of them listens.
            await self.stop()
            host, port = self.address
            raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def _bind(self) -> socket.socket:
        """Takes the port before anything else, so that a second broker on it is told so at once."""
        host, port = self.config.listener.host, self.config.listener.port
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            try:
                # The port can be taken again at once, although connections of the last broker linger in TIME_WAIT.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.address: tuple[str, int] = (host, listener.getsockname()[1])
        return listener

    async def _open_data(self) -> None:
        try:
            self.data = await asyncio.to_thread(DataDirectory.open, self._data_path, node_id=self.config.node_id)
        except (LogError, OSError) as error:
            raise BrokerError(str(error)) from error
        try:
            self.topics = Topics(self.data, self.config, self.changes, self.now_ms)
            await asyncio.to_thread(self.topics.load)
            self.producer_ids = await asyncio.to_thread(ProducerIds, self.data.path)
        except (LogError, TopicsFileError, ConfigError, OSError) as error:
            self.data.close({}, clean=False)
            raise BrokerError(str(error)) from error

    async def stop(self) -> None:
        """Stops listening, ends the connections, and leaves the data as a clean start wants it."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in tuple(self._connections):
            connection.close(None)
        self.clock.stop()
        await self.groups.stop()
        await self.changes.settled()
        await self.housekeeping.stop()
        await self.flusher.stop()
        await asyncio.to_thread(self._close_data)
        logger.info("stopped; longest pause of the event loop %.1f ms", self.clock.longest_pause_seconds * 1000)

    def _close_data(self) -> None:
        try:
            self.data.close(self.topics.logs())
        except LogError as error:
            logger.error("%s; the next start will look for torn tails", error)

    # -- connections ---------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Takes in a new connection; the reason if there is no room for it."""
        if len(self._connections) >= self.config.max_connections:
            return f"there are max.connections ({self.config.max_connections}) already"
        host = connection.client_host
        if self._per_host[host] >= self.config.max_connections_per_ip:
            return f"{host} has max.connections.per.ip ({self.config.max_connections_per_ip}) already"
        self._connections.add(connection)
        self._per_host[host] += 1
        return None

    def forget(self, connection: Connection) -> None:
        self.memory.forget(connection)
        if connection in self._connections:
            self._connections.remove(connection)
            self._per_host[connection.client_host] -= 1
            if not self._per_host[connection.client_host]:
                del self._per_host[connection.client_host]

    def _sweep(self) -> None:
        """Closes idle connections, but never one whose request is parked: its client waits for us."""
        now = self.clock.now()
        idle_seconds = self.config.connections_max_idle_ms / 1000
        if idle_seconds > 0:
            for connection in tuple(self._connections):
                if now - connection.last_active > idle_seconds and not connection.parked:
                    logger.info("closing the idle connection of %s", connection.client_host)
                    connection.close(None)
        self.memory.evict_stalled(now)
        self.clock.call_later(min(SWEEP_SECONDS, max(0.05, idle_seconds / 4)), self._sweep)
