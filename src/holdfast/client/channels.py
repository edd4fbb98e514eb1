"""The connections of a membership's thread, one for each channel, and the requests in flight on them."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.client.errors import HoldfastError
from holdfast.client.transport import Waker
from holdfast.membership.effects import Channel
from holdfast.membership.requests import CoordinatorNode
from holdfast.wire.message import Api

MAX_CONNECT_S: Final = 5.0
"""The maximum duration of one attempt to connect, so that the thread can execute commands in between."""

ResponseHandler = Callable[[Any, int], None]
"""Gets the response, or None if the request failed, and the time in milliseconds."""

logger = logging.getLogger("holdfast.client")


@dataclass(slots=True)
class _Pending:
    on_response: ResponseHandler
    deadline: int


@dataclass(slots=True)
class _Channel:
    connection: Connection | None = None
    pending: dict[int, _Pending] = field(default_factory=dict)
    """By correlation id."""


class Channels:
    def __init__(
        self,
        cluster: ClusterClient,
        on_error: Callable[[HoldfastError], None],
        on_closed: Callable[[Channel], None],
    ) -> None:
        """`on_error` gets the error of a connection that breaks with requests in flight."""
        self._cluster = cluster
        self._clock = cluster.clock
        self._on_error = on_error
        self._on_closed = on_closed
        self._coordinator: CoordinatorNode | None = None
        self._channels = {channel: _Channel() for channel in Channel}

    @property
    def coordinator(self) -> Address:
        assert self._coordinator is not None
        return Address(self._coordinator.host, self._coordinator.port)

    def connect_coordinator(self, coordinator: CoordinatorNode) -> Connection:
        self._coordinator = coordinator
        state = self._channels[Channel.COORDINATOR]
        state.connection = self._open(Channel.COORDINATOR)
        return state.connection

    def _open(self, channel: Channel) -> Connection:
        deadline = self._clock.now() + MAX_CONNECT_S
        if channel is Channel.BOOTSTRAP:
            return self._cluster.any(deadline)
        if self._coordinator is None:
            raise HoldfastError("the coordinator is not known yet", retriable=True)
        return self._cluster.open(self.coordinator, deadline)

    def send(
        self,
        channel: Channel,
        api: Api,
        build: Callable[[int], Any],
        max_version: int,
        timeout_ms: int,
        on_response: ResponseHandler,
    ) -> None:
        """If it raises an exception, `on_response` is not called."""
        state = self._channels[channel]
        if state.connection is None or state.connection.closed:
            state.connection = self._open(channel)
        version = state.connection.version_of(api, max_version)
        correlation_id = state.connection.send(build(version), version)
        state.pending[correlation_id] = _Pending(on_response, self._clock.now_ms() + timeout_ms)

    def wait_for_responses(self, waker: Waker, until_ms: int) -> None:
        """Waits for a response, a `wake`, or the first of the deadlines."""
        connections = [state.connection for state in self._channels.values() if state.connection is not None]
        if any(one.pending for one in connections):
            return
        now = self._clock.now_ms()
        deadlines = [request.deadline for state in self._channels.values() for request in state.pending.values()]
        poll = select.poll()
        poll.register(waker, select.POLLIN)
        for connection in connections:
            if connection.fileno() >= 0:
                poll.register(connection, select.POLLIN)
        self._clock.poll(poll, self._clock.now() + (min([until_ms, *deadlines]) - now) / 1000)
        waker.drain()
        waker.take()

    def receive(self) -> None:
        """Handle the responses that have arrived."""
        for channel in self._channels:
            self._receive(channel)

    def _receive(self, channel: Channel) -> None:
        state = self._channels[channel]
        while state.connection is not None:
            try:
                received = state.connection.receive(0.0)
            except HoldfastError as error:
                if state.pending:
                    self._on_error(error)
                self.close(channel)  # without requests in flight: the broker closes idle connections
                return
            if received is None:
                return
            request = state.pending.pop(received[0], None)
            if request is not None:
                request.on_response(received[1], self._clock.now_ms())

    def expire(self, now: int) -> None:
        """Close the connection of each request that has timed out, because its response could be mistaken for another
        one."""
        for channel, state in self._channels.items():
            if any(request.deadline <= now for request in state.pending.values()):
                logger.warning("no answer in time from %s", state.connection and state.connection.address)
                self.close(channel)

    def close(self, channel: Channel) -> None:
        """Requests in flight on the channel fail."""
        state = self._channels[channel]
        connection, state.connection = state.connection, None
        if connection is not None:
            connection.close()
        pending, state.pending = state.pending, {}
        for request in pending.values():
            request.on_response(None, self._clock.now_ms())
        self._on_closed(channel)
