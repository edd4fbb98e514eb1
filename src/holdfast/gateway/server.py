"""The gateway: builds its parts, starts them in order, and stops them in order.

The order of a start matters. The topics are known before a group is served, because a commit of an unknown topic is
rejected. The state topic is found before anything is claimed, and the ports are checked, so that a second gateway on
the same machine fails before it takes the groups over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import holdfast.broker.api.handlers  # noqa: F401  # registers every handler
from holdfast.broker.api.request import ClientSession
from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.authorization.users_file import UsersFileError
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config.broker import ConfigError as BrokerConfigError
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.network.tls_context import TlsContext
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.client.addresses import Address
from holdfast.client.errors import ConfigError
from holdfast.gateway.adoption import Adoption
from holdfast.gateway.brokers import GatewayAddresses, parse_bootstrap
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.group_names import GroupNames
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaSetupError, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka_offsets import KafkaOffsets
from holdfast.gateway.own_groups import ObservedEventLog, OwnGroups
from holdfast.gateway.requests.context import GatewayServices
from holdfast.gateway.requests.local_requests import LocalRequests
from holdfast.gateway.requests.rights import KafkaAuthorizer
from holdfast.gateway.router.router import Router
from holdfast.gateway.router.settings import RouterSettings
from holdfast.gateway.state.kafka_event_log import KafkaEventLog
from holdfast.gateway.state.kafka_group_log import KafkaGroupLog
from holdfast.gateway.state.topic import StateTopics, open_state_topics
from holdfast.gateway.topic_mirror import TopicMirror
from holdfast.version import VERSION

logger = logging.getLogger(__name__)

HOUSEKEEPING_S: Final = 1.0
"""How often changed certificates and users are looked for."""
LOADED_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.1


class GatewayError(Exception):
    """The gateway cannot start; the text is one sentence for the operator."""


class Gateway:
    """The parts are built by `start`."""

    cluster: KafkaCluster
    topics: TopicMirror
    groups: GroupCoordinatorService
    names: GroupNames
    own_groups: OwnGroups
    router: Router

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.id = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._tasks = ShieldedTasks()
        self._slices = SliceScheduler()
        self._background: set[asyncio.Task[None]] = set()
        self._stoppers: list[Callable[[], Awaitable[None]]] = []
        """Of the parts that run, in the order of their start."""
        self._failure: asyncio.Future[str] | None = None
        self._users: Authorizer | None = None
        self._client_tls: TlsContext | None = None

    # -- start ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises GatewayError if the operator must act."""
        self._failure = asyncio.get_running_loop().create_future()
        try:
            await self._start()
        except (ConfigError, BrokerConfigError, UsersFileError, KafkaSetupError, KafkaRefused) as error:
            await self.stop()
            raise GatewayError(str(error)) from error
        except KafkaUnreachable as error:
            await self.stop()
            raise GatewayError(f"Kafka cannot be reached: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        await asyncio.to_thread(self._read_files)
        settings = KafkaClientSettings.from_config(self.config.client_properties)
        addresses = GatewayAddresses(Address(*self.config.advertise))
        self.cluster = KafkaCluster(parse_bootstrap(self.config.kafka), settings, addresses)
        self._stoppers.append(self.cluster.close)
        await self.cluster.start()
        self._log_cluster()
        topics = await open_state_topics(self.cluster, create=self.config.create_state)
        self.topics = TopicMirror(self.cluster, self._slices)
        self._stoppers.append(self.topics.stop)
        await self.topics.start()
        await self._start_groups(topics)
        self._start_router(settings)
        self._check_ports()
        await self._open_ports()
        self._run(self._hold_names())
        self._run(self._reload_changed_files())

    def _read_files(self) -> None:
        security = self.config.broker_config.security
        if security.users_file is not None:
            self._users = Authorizer(security)
        for listener in self.config.broker_config.listeners:
            tls = security.listeners[listener.name].tls
            if tls is not None:
                self._client_tls = TlsContext(tls)

    def _log_cluster(self) -> None:
        log_event(
            logger,
            "Kafka found",
            version=VERSION,
            gateway=self.id,
            cluster_id=self.cluster.cluster_id,
            brokers=len(self.cluster.brokers.node_ids),
            mode="transparent" if self.cluster.brokers.is_transparent else "rewriting",
        )

    async def _start_groups(self, topics: StateTopics) -> None:
        clock = PauseAwareClock(asyncio.get_running_loop())
        event_log = KafkaEventLog(self.cluster, topics.ledger)
        self._stoppers.append(event_log.close)
        group_log = KafkaGroupLog(
            self.cluster, topics.groups, gateway_id=self.id, on_failed=self._fail, on_fenced=self._fenced
        )
        self._stoppers.append(group_log.close)
        self.groups = GroupCoordinatorService(
            self.config.broker_config,
            group_log,
            ObservedEventLog(event_log, lambda group_id: self.own_groups.deleted(group_id)),
            clock,
            partition_count=self.topics.partition_count,
            slices=self._slices,
            tasks=self._tasks,
        )
        self.names = GroupNames(self.cluster, self._slices)
        self._stoppers.append(self.names.stop)
        adoption = Adoption(self.cluster, self.names, self._slices)
        offsets = KafkaOffsets(self.cluster, self._slices)
        self.own_groups = OwnGroups(self.groups, self.cluster, self.names, adoption, offsets, event_log)
        self.names.is_ours, self.names.on_conflict = self.own_groups.is_own, self.own_groups.conflict
        self._stoppers.append(self.own_groups.stop)
        self.topics.on_deleted = self.groups.topic_deleted
        self.topics.on_grown = self.groups.topic_grown
        clock.start()
        self._stoppers.append(self._stopper_of(clock))

    def _start_router(self, settings: KafkaClientSettings) -> None:
        services = GatewayServices(
            config=self.config.broker_config,
            topics=self.topics,
            groups=self.groups,
            slices=self._slices,
            cluster=self.cluster,
            own_groups=self.own_groups,
        )
        kafka_authorizer = KafkaAuthorizer() if self._users is None else None
        authorizer = self._users or kafka_authorizer
        self.router = Router(
            self.cluster.brokers,
            LocalRequests(services, kafka_authorizer),
            self._router_settings(settings),
            self._client_tls,
            on_topics_changed=self.topics.refresh_soon,
            make_session=lambda listener, on_authenticated: ClientSession(listener, authorizer, on_authenticated),
        )

    def _router_settings(self, settings: KafkaClientSettings) -> RouterSettings:
        config = self.config.broker_config
        return RouterSettings(
            listen=Address(*self.config.listen),
            advertised=Address(*self.config.advertise),
            upstream_tls=settings.security.tls,
            upstream_uses_sasl=settings.security.sasl is not None,
            max_connections=config.max_connections,
            request_max_bytes=config.socket_request_max_bytes,
            held_request_max_bytes=config.queued_max_request_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            authentication_timeout_ms=config.authentication_timeout_ms,
        )

    async def _open_ports(self) -> None:
        """After the groups are loaded. A client that cannot connect yet tries again. A commit that is answered with
        COORDINATOR_LOAD_IN_PROGRESS is an error for applications of librdkafka."""
        self.groups.start()
        self._stoppers.append(self.groups.stop)
        await self._groups_loaded()
        try:
            await self.router.start()
        except OSError as error:
            raise GatewayError(f"cannot listen on the ports of --listen: {error.strerror or error}") from error
        self._stoppers.append(self.router.stop)

    def _check_ports(self) -> None:
        """Nothing was claimed yet: a gateway that cannot open its ports leaves the groups to another one."""
        host, base = self.config.listen
        for port in (base, *(base + 1 + node_id for node_id in self.cluster.brokers.node_ids)):
            family, kind, protocol, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                    probe.listen()
                except OSError as error:
                    raise GatewayError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    async def _groups_loaded(self) -> None:
        """Waits until all groups are loaded. If Kafka needs too long, the others are served."""
        assert self._failure is not None, "started"
        groups, deadline = self.groups.coordinator.queries, time.monotonic() + LOADED_WITHIN_S
        while groups.is_anything_loading and time.monotonic() < deadline:
            if self._failure.done():
                raise GatewayError(self._failure.result())
            await asyncio.sleep(_POLL_S / 10)

    # -- while it runs -------------------------------------------------------------------------------------------------

    async def failed(self) -> str:
        """Waits until the gateway has to stop by itself; returns why."""
        assert self._failure is not None, "started"
        return await asyncio.shield(self._failure)

    def _fail(self, reason: str) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(reason)

    @staticmethod
    def _fenced(partition: int) -> None:
        logger.error("another gateway has claimed partition %d of the group log and serves its groups", partition)

    async def _hold_names(self) -> None:
        """When all groups are loaded."""
        groups = self.groups.coordinator.queries
        while groups.is_anything_loading or groups.is_anything_lost:  # noqa: ASYNC110 - there is no event for both
            await asyncio.sleep(_POLL_S)
        await self._delete_offsets_of_deleted_topics()
        self.names.hold_all(groups.group_ids())
        self.names.start()
        await self.names.release_orphans()

    async def _delete_offsets_of_deleted_topics(self) -> None:
        """Of topics that were deleted while no gateway ran."""
        groups = self.groups.coordinator.queries
        committed = {topic for name in groups.group_ids() for topic in groups.committed_topics(name)}
        for topic in await self.topics.confirmed_missing(committed):
            self.groups.topic_deleted(topic)

    async def _reload_changed_files(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            if self._client_tls is not None and self._client_tls.changed:
                await asyncio.to_thread(self._client_tls.reload)
            if self._users is not None and self._users.changed:
                users = await asyncio.to_thread(self._users.reload)
                if users is not None:
                    self._users.replace(users)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a background task of the gateway failed", exc_info=error)

    # -- stop ----------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops the parts, the last one first: clients before the coordinator, and Kafka in the end."""
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        while self._stoppers:
            await self._stoppers.pop()()
        await self._tasks.join()
        self._slices.close()
        log_event(logger, "stopped")

    @staticmethod
    def _stopper_of(clock: PauseAwareClock) -> Callable[[], Awaitable[None]]:
        async def stop() -> None:
            clock.stop()

        return stop
