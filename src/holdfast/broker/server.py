"""The broker: builds its parts, starts them in order, and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from pathlib import Path

import holdfast.broker.api.handlers  # noqa: F401  # registers every handler
from holdfast.broker.api.checks import checked_handlers
from holdfast.broker.api.handlers.api_versions import UNSUPPORTED_VERSION
from holdfast.broker.api.pre_auth_handlers import PRE_AUTH_HANDLERS
from holdfast.broker.api.registry import HANDLERS
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.authorization.user_changes import UserChanges
from holdfast.broker.authorization.users_file import UsersFileError
from holdfast.broker.clock import PauseAwareClock, wall_clock_ms
from holdfast.broker.config.broker import BrokerConfig, ConfigError
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.groups.event_log import EventLogWriter
from holdfast.broker.groups.local_group_log import LocalGroupLog
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.metrics import NO_METRICS, Metrics
from holdfast.broker.network.acceptor import Acceptor
from holdfast.broker.network.bound_listener import BoundListener, create_bound_listeners
from holdfast.broker.network.connection import Connection
from holdfast.broker.network.connections import Connections
from holdfast.broker.network.environment import ConnectionEnvironment
from holdfast.broker.network.request_memory import RequestMemory
from holdfast.broker.network.tls import TlsStream
from holdfast.broker.network.tls_context import TlsContext
from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.broker.storage.flusher import Flusher
from holdfast.broker.storage.log_maintenance import LogMaintenance
from holdfast.broker.storage.producer_ids import ProducerIds
from holdfast.broker.storage.topics import Topics, TopicsFileError
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.log import DataDirectory, LogError
from holdfast.version import VERSION

logger = logging.getLogger(__name__)

BACKLOG = 1024
SWEEP_SECONDS = 1.0
"""How often the broker checks for idle and stalled connections and for changed files."""


class BrokerError(Exception):
    """The broker cannot start; the text is one sentence for the operator."""


class Broker:
    """The parts that need the data, the event loop or the listeners are built by `start`."""

    data: DataDirectory
    topics: Topics
    producer_ids: ProducerIds
    clock: PauseAwareClock
    flusher: Flusher
    log_maintenance: LogMaintenance
    groups: GroupCoordinatorService
    connections: Connections
    services: Services

    def __init__(self, config: BrokerConfig, data: Path, metrics: Metrics = NO_METRICS) -> None:
        self.dynamic_config = DynamicBrokerConfig(config)
        self._data_path = data
        self._metrics = metrics
        self.tasks = ShieldedTasks()
        self.slices = SliceScheduler()
        self.disk_health = DiskHealth()
        self.request_memory = RequestMemory(config.queued_max_request_bytes)
        self.listeners: list[BoundListener] = []
        self.authorizer: Authorizer | None = None
        self._user_changes: UserChanges | None = None
        self._reloading_files: asyncio.Task[None] | None = None

    @property
    def config(self) -> BrokerConfig:
        return self.dynamic_config.current

    @property
    def address(self) -> tuple[str, int]:
        """Of the first listener."""
        return self.listeners[0].address

    # -- start ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the data directory and starts listening. Raises BrokerError if the operator must act."""
        await self._create_listeners()
        try:
            self._bind()
            await self._open_data()
        except BaseException:
            self._close_listeners()
            raise
        self._build()
        self.clock.start()
        self.log_maintenance.start()
        self.groups.start()
        self._sweep()
        environment = self._environment()
        for listener in self.listeners:
            await self._listen(listener, environment)

    async def _create_listeners(self) -> None:
        """Reads the users file and the certificates."""
        try:
            if self.config.security.users_file is not None:
                self.authorizer = await asyncio.to_thread(Authorizer, self.config.security)
            self.listeners = await asyncio.to_thread(create_bound_listeners, self.config)
        except (ConfigError, UsersFileError) as error:
            raise BrokerError(str(error)) from error

    def _bind(self) -> None:
        """Binds the ports first, so that a second broker on one of them fails at once."""
        for listener in self.listeners:
            try:
                listener.bind()
            except OSError as error:
                raise _cannot_listen(listener, error) from error

    async def _open_data(self) -> None:
        node_id = self.config.configured_node_id
        try:
            self.data = await asyncio.to_thread(DataDirectory.open, self._data_path, node_id=node_id)
        except (LogError, OSError) as error:
            raise BrokerError(str(error)) from error
        try:
            self.dynamic_config.load(self.data.path, self.data.node_id)
            self.topics = Topics(self.data, self.config, self.tasks, wall_clock_ms)
            began = time.monotonic()
            await asyncio.to_thread(self.topics.load)
            self._log_opened(time.monotonic() - began)
            self.producer_ids = await asyncio.to_thread(ProducerIds, self.data.path)
        except (LogError, TopicsFileError, ConfigError, OSError) as error:
            self.data.close({}, clean=False)
            raise BrokerError(str(error)) from error

    def _build(self) -> None:
        self.clock = PauseAwareClock(asyncio.get_running_loop(), self._metrics)
        self.flusher = Flusher(self._metrics)
        self.log_maintenance = LogMaintenance(self.dynamic_config, self.data, self.topics, metrics=self._metrics)
        self.groups = self._group_service()
        self.connections = Connections(
            self.dynamic_config, self.clock, self.request_memory, self.groups.connection_lost
        )
        if self.authorizer is not None:
            self._user_changes = UserChanges(self.authorizer, self.connections.end_sessions)
        self.services = Services(
            dynamic_config=self.dynamic_config,
            data=self.data,
            topics=self.topics,
            producer_ids=self.producer_ids,
            flusher=self.flusher,
            disk_health=self.disk_health,
            groups=self.groups,
            user_changes=self._user_changes,
            tasks=self.tasks,
            slices=self.slices,
        )
        self.topics.on_deleted = self.groups.topic_deleted
        self.topics.on_grown = self.groups.topic_grown
        self.dynamic_config.on_altered(self.topics.reconfigure)
        self.dynamic_config.on_altered(self.log_maintenance.reconfigured)

    def _group_service(self) -> GroupCoordinatorService:
        config = self.config
        group_log = LocalGroupLog(
            self.topics,
            self.flusher,
            self.disk_health,
            self.tasks,
            partition_count=config.offsets_topic_num_partitions,
            segment_bytes=config.offsets_topic_segment_bytes,
        )
        return GroupCoordinatorService(
            config,
            group_log,
            EventLogWriter(self.topics, self.tasks, self.flusher),
            self.clock,
            partition_count=self.topics.partition_count,
            slices=self.slices,
            tasks=self.tasks,
            metrics=self._metrics,
        )

    def _environment(self) -> ConnectionEnvironment:
        return ConnectionEnvironment(
            owner=self.connections,
            services=self.services,
            handlers=HANDLERS if self.authorizer is None else checked_handlers(),
            pre_auth_handlers=PRE_AUTH_HANDLERS,
            unsupported_api_versions=UNSUPPORTED_VERSION,
            authorizer=self.authorizer,
            config=self.dynamic_config,
            clock=self.clock,
            slices=self.slices,
            memory=self.request_memory,
            metrics=self._metrics,
        )

    async def _listen(self, listener: BoundListener, environment: ConnectionEnvironment) -> None:
        connection = partial(Connection, environment, listener)
        protocol = connection if listener.tls is None else partial(TlsStream, environment, listener.tls, connection)
        assert listener.socket is not None
        try:
            listener.acceptor = Acceptor(listener.socket, protocol)
            listener.acceptor.start(BACKLOG)
        except OSError as error:
            # Two sockets may be bound to one port until one of them listens.
            await self.stop()
            raise _cannot_listen(listener, error) from error

    def _log_opened(self, seconds: float) -> None:
        log_event(
            logger,
            "data opened",
            version=VERSION,
            node_id=self.config.node_id,
            cluster_id=self.data.cluster_id,
            path=self.data.path,
            was_clean=self.data.was_clean,
            topics=len(self.topics),
            partitions=sum(1 for _ in self.topics.partitions()),
            seconds=round(seconds, 3),
        )

    # -- stop ----------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops listening, closes the connections, and closes the data directory cleanly."""
        self._close_listeners()
        if self._reloading_files is not None:
            self._reloading_files.cancel()
        await self.connections.drain()
        self.clock.stop()
        await self.groups.stop()
        await self.tasks.join()
        self.slices.close()
        await self.log_maintenance.stop()
        await self.flusher.stop()
        await asyncio.to_thread(self._close_data)
        pause_ms = round(self.clock.max_pause_seconds * 1000, 1)
        log_event(logger, "stopped", longest_pause_of_the_event_loop_ms=pause_ms)

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.close()

    def _close_data(self) -> None:
        try:
            self.data.close(self.topics.logs())
        except LogError as error:
            logger.error("%s; the next start will look for torn tails", error)

    # -- periodic work -------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        idle_seconds = self.config.connections_max_idle_ms / 1000
        if idle_seconds > 0:
            self.connections.close_idle(idle_seconds)
        self.request_memory.evict_stalled(self.clock.now())
        self._reload_changed_files()
        self.clock.call_later(min(SWEEP_SECONDS, max(0.05, idle_seconds / 4)), self._sweep)

    def _reload_changed_files(self) -> None:
        """Certificates and the users file may be replaced while the broker runs."""
        contexts = dict.fromkeys(one.tls for one in self.listeners if one.tls is not None and one.tls.changed)
        users = self._user_changes if self.authorizer is not None and self.authorizer.changed else None
        if (contexts or users) and self._reloading_files is None:
            self._reloading_files = asyncio.create_task(_reload_files(list(contexts), users))
            self._reloading_files.add_done_callback(self._files_reloaded)

    def _files_reloaded(self, done: asyncio.Task[None]) -> None:
        self._reloading_files = None
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("a file with users or a certificate could not be reloaded", exc_info=error)


async def _reload_files(contexts: list[TlsContext], users: UserChanges | None) -> None:
    for context in contexts:
        await asyncio.to_thread(context.reload)
    if users is not None:
        await users.reload()


def _cannot_listen(listener: BoundListener, error: OSError) -> BrokerError:
    host, port = listener.address
    return BrokerError(f"cannot listen on {host}:{port}: {error.strerror or error}")
