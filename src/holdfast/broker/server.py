"""The broker: opens its data, listens, serves, and stops cleanly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import holdfast.broker.handlers  # noqa: F401  # registers every handler
from holdfast.broker import broker_overrides
from holdfast.broker.accepting import Acceptor
from holdfast.broker.changes import Changes
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config import BrokerConfig, ConfigError
from holdfast.broker.connection import Connection
from holdfast.broker.disk_state import DiskState
from holdfast.broker.dispatch import HANDLERS, Handler
from holdfast.broker.doors import Door, make_doors
from holdfast.broker.draining import drain
from holdfast.broker.flusher import Flusher
from holdfast.broker.framing import SCRATCH_BYTES
from holdfast.broker.groups import Groups
from holdfast.broker.guards import guarded_handlers
from holdfast.broker.handlers.api_versions import unsupported_version
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.log_lines import say
from holdfast.broker.memory import RequestMemory
from holdfast.broker.producer_ids import ProducerIds
from holdfast.broker.security.doorway import DOORWAY
from holdfast.broker.security.tls import Tls
from holdfast.broker.security.user_desk import UserDesk
from holdfast.broker.security.users import Users, UsersFileError
from holdfast.broker.slices import Slices
from holdfast.broker.tls_connection import TlsConnection
from holdfast.broker.topics import Topics, TopicsFileError
from holdfast.broker.transaction_refusals import TransactionRefusals
from holdfast.log import DataDirectory, LogError
from holdfast.version import VERSION

logger = logging.getLogger(__name__)

BACKLOG = 1024
SWEEP_SECONDS = 1.0
"""How often idle and stalled connections are looked for."""
MOST_UNPACKED = 2
"""So many large record batches are unpacked at a time, to be looked at: each takes up to 64 MiB."""


class BrokerError(Exception):
    """The broker cannot start; the text is one sentence for the operator."""


class Broker:
    def __init__(self, config: BrokerConfig, data: Path) -> None:
        self.config = config
        self._data_path = data
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.changes = Changes()
        self.slices = Slices()
        self.unpacking = asyncio.Semaphore(MOST_UNPACKED)
        self.disk_state = DiskState()
        self.transaction_refusals = TransactionRefusals()
        self.altering = asyncio.Lock()
        self.memory = RequestMemory(config.queued_max_request_bytes)
        self.unsupported_api_versions = unsupported_version()
        self._connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._strangers: dict[Connection, None] = {}
        """Those of whom we do not know yet who they are, in the order in which they came."""
        self.doors: list[Door] = []
        self.users: UserDesk | None = None
        self.handlers: Mapping[int, Handler] = HANDLERS
        self.doorway: Mapping[int, Handler] = DOORWAY
        self._looking_after_files: asyncio.Task[None] | None = None
        self._editing_users = asyncio.Lock()

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
    def address(self) -> tuple[str, int]:
        """Of the first listener."""
        return self.doors[0].address

    @staticmethod
    def now_ms() -> int:
        """Wall-clock time, for what is stored and shown; never for deadlines."""
        return time.time_ns() // 1_000_000

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the data and begins to listen. Raises BrokerError when the operator must act."""
        loop = asyncio.get_running_loop()
        await self._make_doors()
        try:
            self._bind()
            await self._open_data()
        except BaseException:
            self._close_doors()
            raise
        self.clock = PauseAwareClock(loop)
        self.flusher = Flusher()
        self.housekeeping = Housekeeping(self)
        self.clock.start()
        self.housekeeping.start()
        self.groups = Groups(self)
        self.groups.start()
        self._sweep()
        for door in self.doors:
            await self._listen(door)

    async def _make_doors(self) -> None:
        """Reads who may come in, and the certificates that we show."""
        try:
            if self.config.security.users_file is not None:
                self.users = await asyncio.to_thread(UserDesk, self.config.security)
                self.handlers = guarded_handlers()
            self.doors = await asyncio.to_thread(make_doors, self.config)
        except (ConfigError, UsersFileError) as error:
            raise BrokerError(str(error)) from error

    def _bind(self) -> None:
        """Takes the ports before anything else, so that a second broker on one is told so at once."""
        for door in self.doors:
            try:
                door.bind()
            except OSError as error:
                raise _cannot_listen(door, error) from error

    async def _listen(self, door: Door) -> None:
        kind = Connection if door.tls is None else TlsConnection
        assert door.socket is not None
        try:
            door.acceptor = Acceptor(door.socket, partial(kind, self, door))
            door.acceptor.start(BACKLOG)
        except OSError as error:
            # Two sockets may be bound to one port until one of them listens.
            await self.stop()
            raise _cannot_listen(door, error) from error

    def _close_doors(self) -> None:
        for door in self.doors:
            door.close()

    async def _open_data(self) -> None:
        try:
            self.data = await asyncio.to_thread(DataDirectory.open, self._data_path, node_id=self.config.given_node_id)
        except (LogError, OSError) as error:
            raise BrokerError(str(error)) from error
        try:
            config = replace(self.config, node_id=self.data.node_id)
            self.config = broker_overrides.with_stored(config, self.data.path)
            self.topics = Topics(self.data, self.config, self.changes, self.now_ms)
            began = time.monotonic()
            await asyncio.to_thread(self.topics.load)
            self._say_what_was_opened(time.monotonic() - began)
            self.producer_ids = await asyncio.to_thread(ProducerIds, self.data.path)
        except (LogError, TopicsFileError, ConfigError, OSError) as error:
            self.data.close({}, clean=False)
            raise BrokerError(str(error)) from error

    async def stop(self) -> None:
        """Stops listening, ends the connections, and leaves the data as a clean start wants it."""
        self._close_doors()
        if self._looking_after_files is not None:
            self._looking_after_files.cancel()
        await drain(self._connections)
        self.clock.stop()
        await self.groups.stop()
        await self.changes.settled()
        self.slices.close()
        await self.housekeeping.stop()
        await self.flusher.stop()
        await asyncio.to_thread(self._close_data)
        pause_ms = round(self.clock.longest_pause_seconds * 1000, 1)
        say(logger, "stopped", longest_pause_of_the_event_loop_ms=pause_ms)

    def _close_data(self) -> None:
        try:
            self.data.close(self.topics.logs())
        except LogError as error:
            logger.error("%s; the next start will look for torn tails", error)

    async def alter_configs(self, config: BrokerConfig) -> None:
        """Goes by `config` from now on, and after the next start; StorageError if that cannot be promised."""
        await broker_overrides.store(config, self.data.path)
        self.config = config
        self.topics.reconfigure(config)
        self.housekeeping.reconfigured()
        altered = {**config.altered_for_all, **config.altered}
        say(logger, "broker configured", altered=",".join(f"{name}={text}" for name, text in sorted(altered.items())))

    def _say_what_was_opened(self, seconds: float) -> None:
        say(
            logger,
            "data opened",
            version=VERSION,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            path=self.data.path,
            was_clean=self.data.was_clean,
            topics=len(self.topics),
            partitions=sum(1 for _ in self.topics.partitions()),
            seconds=round(seconds, 3),
        )

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
        if connection.is_stranger:
            self._watch_stranger(connection)
        return None

    def _watch_stranger(self, stranger: Connection) -> None:
        if len(self._strangers) >= self.config.max_unauthenticated_connections:
            # The one who has had the most time: whoever can say who he is, does so at once.
            oldest = next(iter(self._strangers))
            most = self.config.max_unauthenticated_connections
            oldest.close(f"more than max.unauthenticated.connections ({most}) have not said who they are")
            self.known(oldest)
        self._strangers[stranger] = None
        timeout_ms = self.config.authentication_timeout_ms
        reason = f"it has not said who it is within authentication.timeout.ms ({timeout_ms})"
        stranger.deadline = self.clock.call_later(timeout_ms / 1000, partial(stranger.close, reason))

    def known(self, connection: Connection) -> None:
        """Not a stranger any more, or gone."""
        self._strangers.pop(connection, None)
        if connection.deadline is not None:
            connection.deadline.cancel()
            connection.deadline = None

    def forget(self, connection: Connection) -> None:
        self.known(connection)
        self.memory.forget(connection)
        self.groups.connection_lost(connection)
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
        self._look_after_files()
        self.clock.call_later(min(SWEEP_SECONDS, max(0.05, idle_seconds / 4)), self._sweep)

    # -- files that somebody may replace -------------------------------------------------------------------------------

    def _look_after_files(self) -> None:
        desk = self.users
        changed = list(dict.fromkeys(door.tls for door in self.doors if door.tls is not None and door.tls.changed))
        users_changed = desk is not None and desk.changed
        if (changed or users_changed) and self._looking_after_files is None:
            self._looking_after_files = asyncio.create_task(self._read_again(changed, desk if users_changed else None))
            self._looking_after_files.add_done_callback(self._looked_after_files)

    def _looked_after_files(self, done: asyncio.Task[None]) -> None:
        self._looking_after_files = None
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("a file with users or a certificate could not be read again", exc_info=error)

    async def _read_again(self, changed: list[Tls], desk: UserDesk | None) -> None:
        for tls in changed:
            await asyncio.to_thread(tls.reload)
        if desk is None:
            return
        async with self._editing_users:
            read = await asyncio.to_thread(desk.read_again)
            gone = frozenset[str]() if read is None else desk.replace(read)
        self._end_outdated(gone)

    async def edit_users(self, change: Callable[[Users], Users], asked_by: Connection) -> bool:
        """Changes the users file and goes by it from then on. Raises UsersFileError; then nothing has changed.

        Returns whether `asked_by` must be closed after its reply, because the password of its own user has changed.
        """
        assert self.users is not None
        async with self._editing_users:
            gone = self.users.replace(await asyncio.to_thread(self.users.edit, change))
        self._end_outdated(gone, but=asked_by)
        return asked_by.principal in gone

    def _end_outdated(self, gone: frozenset[str], but: Connection | None = None) -> None:
        for connection in tuple(self._connections) if gone else ():
            if connection is but:
                continue
            if connection.principal in gone:
                connection.close(f"{connection.principal} was removed, or has another password")
            elif connection.exchange is not None:
                connection.close("passwords changed while it was proving who it is")


def _cannot_listen(door: Door, error: OSError) -> BrokerError:
    host, port = door.address
    return BrokerError(f"cannot listen on {host}:{port}: {error.strerror or error}")
