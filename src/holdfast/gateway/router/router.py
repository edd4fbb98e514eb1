"""The router: clients connect to a port for each broker, and their requests go to that broker or are answered here."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.api.request import ClientSession, ListenerInfo
from holdfast.broker.config.schema import ConfigError
from holdfast.broker.network.request_memory import RequestMemory
from holdfast.broker.network.tls_context import TlsContext
from holdfast.gateway.router.api_versions import highest_versions
from holdfast.gateway.router.client_connection import ClientConnection
from holdfast.gateway.router.connections import Connections
from holdfast.gateway.router.dialer import Dialer
from holdfast.gateway.router.environment import MakeSession, RouterEnvironment
from holdfast.gateway.router.limited_log import LimitedLog
from holdfast.gateway.router.listeners import Listeners
from holdfast.gateway.router.ports import Brokers, GroupRequests
from holdfast.gateway.router.rules import Rule, make_rules
from holdfast.gateway.router.sasl_names import MECHANISMS
from holdfast.gateway.router.settings import RouterSettings

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RoutedListener:
    """The port of a broker, as handlers see it."""

    name: str
    advertised: tuple[str, int]
    mechanisms: tuple[str, ...]


def _session(listener: ListenerInfo, on_authenticated: Callable[[], None]) -> ClientSession:
    return ClientSession(listener, None, on_authenticated)


class Router:
    def __init__(
        self,
        brokers: Brokers,
        requests: GroupRequests,
        settings: RouterSettings,
        client_tls: TlsContext | None = None,
        *,
        on_topics_changed: Callable[[], None] = lambda: None,
        make_session: MakeSession = _session,
    ) -> None:
        """Raises ConfigError if clients would have to present a certificate."""
        if client_tls is not None and client_tls.ssl_context.verify_mode != ssl.CERT_NONE:
            raise ConfigError(
                "the gateway cannot pass the certificates of clients on to Kafka: set ssl.client.auth to none and let "
                "clients authenticate with SASL"
            )
        self._brokers = brokers
        self._requests = requests
        self._settings = settings
        self._client_tls = client_tls
        self._on_topics_changed = on_topics_changed
        self._make_session = make_session
        self._listeners = Listeners(settings.listen, self._start_connection)
        self._rules: dict[int, Rule] = {}
        self._env: RouterEnvironment | None = None
        self._connections: Connections | None = None
        self._stopped = False

    @property
    def connection_count(self) -> int:
        return 0 if self._connections is None else len(self._connections)

    async def start(self) -> None:
        """Opens all ports. The mode of `brokers` must be known. Raises OSError if a port cannot be opened."""
        loop = asyncio.get_running_loop()
        memory = RequestMemory(self._settings.held_request_max_bytes)
        self._connections = Connections(loop, self._settings, memory)
        highest = highest_versions(is_transparent=self._brokers.is_transparent)
        self._rules = make_rules(self._requests.local_keys, highest, self._brokers)
        self._env = RouterEnvironment(
            loop=loop,
            settings=self._settings,
            brokers=self._brokers,
            requests=self._requests,
            owner=self._connections,
            dialer=Dialer(self._brokers, self._settings.connect_timeout_ms / 1000),
            log=LimitedLog(logger),
            memory=memory,
            highest_versions=highest,
            make_session=self._make_session,
            on_topics_changed=self._topics_changed,
        )
        try:
            for node_id in (None, *self._brokers.node_ids):
                self._listeners.open(node_id)
        except OSError:
            self._listeners.close()
            raise
        self._brokers.on_changed(self._open_ports)
        self._connections.start()

    async def stop(self) -> None:
        """Accepts no more clients, waits for responses that are due, and closes all connections."""
        self._stopped = True
        self._listeners.close()
        if self._connections is not None:
            await self._connections.drain()

    def _open_ports(self) -> None:
        """The port of a broker stays open when the broker is gone, because groups are still served there."""
        if self._stopped:
            return
        for node_id in self._brokers.node_ids:
            try:
                self._listeners.open(node_id)
            except OSError as error:
                logger.error("broker %s cannot be reached through the gateway: %s", node_id, error.strerror or error)

    def _start_connection(self, node_id: int | None, peer: socket.socket) -> None:
        if self._env is None:
            raise RuntimeError("the router has not been started")
        tls = None if self._client_tls is None else self._client_tls.ssl_context
        listener = self._listener_of(node_id)
        ClientConnection(self._env, self._rules, listener, node_id, peer, tls).start()

    def _listener_of(self, node_id: int | None) -> RoutedListener:
        mechanisms = MECHANISMS if self._settings.upstream_uses_sasl else ()
        if node_id is None:
            return RoutedListener("BOOTSTRAP", self._settings.advertised or self._settings.listen, mechanisms)
        return RoutedListener(f"BROKER-{node_id}", self._brokers.advertised(node_id), mechanisms)

    def _topics_changed(self) -> None:
        try:
            self._on_topics_changed()
        except Exception:
            logger.exception("the action after a change of topics failed")
