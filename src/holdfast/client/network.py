"""The connections of one member, consumer or admin: any broker, a certain one, the coordinator of a group.

One thread drives a network; `wake` and `close` may be called by any. Two threads have a network each.

Where the brokers are is learnt from whoever answers, and learnt again whenever something fails: after a restart under
other addresses the bootstrap servers are asked anew. Every call ends by its deadline (a point of `time.monotonic()`;
without one, after `request.timeout.ms`) with one exception that names every address tried and what failed there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from holdfast.client.addresses import Address
from holdfast.client.backoff import Backoff
from holdfast.client.connection import Connection
from holdfast.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    GroupError,
    HoldfastError,
    RequestTimedOut,
    error_code,
)
from holdfast.client.metadata import Metadata, Node, metadata_request, read_metadata
from holdfast.client.settings import NetworkSettings
from holdfast.client.transport import Waker
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.apis.metadata import METADATA, MetadataResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

_FIRST_OF_MANY_KEYS = 4
_MOST_RETRY_S = 1.0

Failures = dict[Address | int, str]
"""What failed at each address, or with each broker, in words that name it."""


class Network:
    def __init__(self, settings: NetworkSettings, randomness: random.Random | None = None) -> None:
        self.settings = settings
        self._random = randomness or random.Random()
        self._waker = Waker()
        self._closed = False
        self._nodes: dict[int, Node] = {}
        self._shared: dict[Address, Connection] = {}
        self._backoffs: dict[Address, Backoff] = {}
        self._lock = threading.Lock()  # of the set alone: `close` may come while a connection is being made
        self._open: WeakSet[Connection] = WeakSet()

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers as they were last heard of."""
        return self._nodes

    # -- any thread ----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def wake(self) -> None:
        """Ends a `pause`, or a `receive` of any connection of this network; or else the next one."""
        self._waker.wake()

    def close(self) -> None:
        """Closes every connection, also those that were handed out; whatever waits raises ConnectionLost."""
        self._closed = True
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.close()
        self._waker.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- connections ---------------------------------------------------------------------------------------------------

    def any(self, deadline: float | None = None) -> Connection:
        """A connection to some broker, for short questions; everybody who asks shares it."""
        for connection in self._shared.values():
            if not connection.closed:
                return connection
        deadline = self._deadline(deadline)
        failures: Failures = {}
        while True:
            due = self._due(deadline, failures)
            for number, address in enumerate(due):
                now = time.monotonic()
                # A share for each: a server that never answers must not eat the time of those after it.
                share = now + max(deadline - now, 0) / (len(due) - number)
                with self._noting(address, failures):
                    return self._connected(address, share)

    def node(self, node_id: int, deadline: float | None = None) -> Connection:
        """The shared connection to a certain broker, wherever it is by now."""
        deadline = self._deadline(deadline)
        what = f"broker {node_id} cannot be reached"
        failures: Failures = {}
        while True:
            if node_id not in self._nodes:
                with self._remembering(what, failures):
                    self.metadata((), deadline)
            known = self._nodes.get(node_id)
            if known is None:
                failures[node_id] = f"the cluster has no broker {node_id}"
            else:
                with self._noting(known.address, failures):
                    return self._connected(known.address, deadline)
            self._retry_or_raise(deadline, what, failures)
            self._nodes.pop(node_id, None)

    def open(self, address: Address, deadline: float | None = None) -> Connection:
        """A connection of its own to this address, for one who waits long on it. The caller closes it."""
        connection = Connection(
            *address,
            client_id=self.settings.client_id,
            security=self.settings.security,
            request_timeout_s=self.settings.request_timeout_s,
            max_response_bytes=self.settings.max_response_bytes,
            waker=self._waker,
            family=self.settings.family,
        )
        with self._lock:
            self._open.add(connection)
        self._check_open()  # after it is in the set: whoever closes from now on finds it
        backoff = self._backoff(address)
        setup = time.monotonic() + self.settings.connection_setup_timeout_s
        try:
            connection.connect(min(self._deadline(deadline), setup))
        except HoldfastError as failure:
            # A time-out says less than what failed before: at the end of its caller's time every attempt is cut short.
            silent = isinstance(failure, RequestTimedOut) and backoff.why
            backoff.failed(time.monotonic(), backoff.why if silent else str(failure))
            raise
        backoff.succeeded()
        return connection

    def _connected(self, address: Address, deadline: float) -> Connection:
        connection = self._shared.get(address)
        if connection is None or connection.closed:
            connection = self._shared[address] = self.open(address, deadline)
        return connection

    # -- questions -----------------------------------------------------------------------------------------------------

    def ask(self, message: Any, deadline: float | None = None) -> Any:
        """Any broker's answer. When a connection is lost, another is asked: only for what may be asked twice."""
        return self._ask_any(message.API, lambda _: message, self._deadline(deadline))

    def metadata(
        self, topics: Iterable[str] | None = None, deadline: float | None = None, *, may_create: bool = False
    ) -> Metadata:
        """These topics, or all of them; `()` asks for the brokers alone."""
        deadline = self._deadline(deadline)
        wanted = None if topics is None else list(topics)
        while True:
            response: MetadataResponse = self._ask_any(
                METADATA, lambda version: metadata_request(wanted, version, may_create=may_create), deadline
            )
            if not response.error_code:
                found = read_metadata(response)
                if found.nodes:  # a broker that is just starting names none, not even itself
                    self._learn(found.nodes)
                return found
            code = error_code(response.error_code)
            if code != ErrorCode.REBOOTSTRAP_REQUIRED:
                raise ConnectionFailed(f"Metadata is answered with {code.name}", code=code)
            # KIP-1102: all that we know of the cluster is outdated.
            self._learn({})
            self._retry_or_raise(deadline, f"Metadata is answered with {code.name}", {}, code)

    def find_coordinator(self, group_id: str, deadline: float | None = None) -> Node:
        """The broker that coordinates the group; waits while there is none yet, as after the very first start."""
        deadline = self._deadline(deadline)
        backoff = Backoff(self.settings.retry_backoff_s, _MOST_RETRY_S, self._random)
        while True:
            found = self._found(group_id, deadline)
            if not found.error_code:
                return Node(found.node_id, found.host, found.port)
            code = error_code(found.error_code)
            what = f"the coordinator of group {group_id!r} cannot be found: {code.name}"
            if found.error_message:
                what += f" ({found.error_message})"
            failure = GroupError(what, code=code)
            backoff.failed(time.monotonic())
            if not failure.retriable or backoff.ready_at >= deadline:
                raise failure
            self._wait_until(backoff.ready_at)

    def coordinator(self, group_id: str, deadline: float | None = None) -> Connection:
        """A connection of its own to the group's coordinator, since a parked join blocks it. The caller closes it."""
        deadline = self._deadline(deadline)
        what = f"the coordinator of group {group_id!r} cannot be reached"
        failures: Failures = {}
        while True:
            with self._remembering(what, failures):
                node = self.find_coordinator(group_id, deadline)
            with self._noting(node.address, failures):
                return self.open(node.address, deadline)
            self._retry_or_raise(deadline, what, failures)

    def _found(self, group_id: str, deadline: float) -> FoundCoordinator:
        def request(version: int) -> FindCoordinatorRequest:
            if version >= _FIRST_OF_MANY_KEYS:
                return FindCoordinatorRequest(coordinator_keys=[group_id])
            return FindCoordinatorRequest(group_id)

        response: FindCoordinatorResponse = self._ask_any(FIND_COORDINATOR, request, deadline)
        if response.coordinators:
            return response.coordinators[0]
        return FoundCoordinator(
            group_id, response.node_id, response.host, response.port, response.error_code, response.error_message
        )

    def _ask_any(self, api: Api, request: Callable[[int], Any], deadline: float) -> Any:
        failures: Failures = {}
        while True:
            connection = self.any(deadline)
            version = connection.version_of(api)
            with self._noting(connection.address, failures):
                until = min(deadline, time.monotonic() + self.settings.request_timeout_s)
                return connection.ask(request(version), until, version)
            self._backoff(connection.address).failed(time.monotonic(), failures[connection.address])
            self._retry_or_raise(deadline, f"{api.name} is not answered", failures)

    def _learn(self, nodes: Mapping[int, Node]) -> None:
        """Takes over the addresses, and drops connections and grudges that belong to none of them any more."""
        self._nodes = dict(nodes)
        known = {node.address for node in nodes.values()} | set(self.settings.bootstrap)
        for address in [address for address in self._shared if address not in known]:
            self._shared.pop(address).close()
        for address in [address for address in self._backoffs if address not in known]:
            del self._backoffs[address]

    # -- trying again --------------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> bool:
        """Waits, and takes a `wake`: True if that ended it."""
        self._check_open()
        return self._waker.wait(time.monotonic() + seconds)

    @contextmanager
    def _noting(self, address: Address, failures: Failures) -> Iterator[None]:
        """What another attempt may mend is noted, and the next statement tries on; anything else is raised."""
        try:
            yield
        except (ConnectionFailed, AuthenticationFailed) as failure:
            self._check_open()
            if not failure.retriable:
                raise
            if not isinstance(failure, RequestTimedOut) or address not in failures:
                failures[address] = str(failure)

    @contextmanager
    def _remembering(self, what: str, failures: Mapping[Address | int, str]) -> Iterator[None]:
        """When time runs out on the way, what failed before is the better reason."""
        try:
            yield
        except ConnectionFailed as failure:
            if not failures or not failure.retriable:
                raise
            raise self._unreachable(what, failures) from failure

    def _due(self, deadline: float, failures: Mapping[Address | int, str]) -> list[Address]:
        """The addresses that may be tried now, brokers before bootstrap servers; waits until there is one."""
        addresses = [node.address for node in self._nodes.values()]
        self._random.shuffle(addresses)
        candidates = list(dict.fromkeys([*addresses, *self.settings.bootstrap]))
        backoffs = {address: self._backoff(address) for address in candidates}
        ready_at = min(backoff.ready_at for backoff in backoffs.values())
        if max(ready_at, time.monotonic()) >= deadline and (failures or ready_at > 0):
            if not failures:
                # Nothing was tried for this caller: it gets the time it gave, lest it call again in a tight loop.
                self._wait_until(deadline)
            raise self._unreachable(
                "no broker can be reached",
                {address: backoff.why for address, backoff in backoffs.items() if backoff.why},
            )
        self._wait_until(ready_at)
        now = time.monotonic()
        return [address for address, backoff in backoffs.items() if backoff.ready_at <= now]

    def _retry_or_raise(
        self, deadline: float, what: str, failures: Mapping[Address | int, str], code: ErrorCode | None = None
    ) -> None:
        resume = time.monotonic() + self.settings.retry_backoff_s * self._random.uniform(0.75, 1.25)
        if resume >= deadline:
            raise self._unreachable(what, failures, code)
        self._wait_until(resume)

    def _unreachable(
        self, what: str, failures: Mapping[Address | int, str], code: ErrorCode | None = None
    ) -> ConnectionFailed:
        """Each failure names its address already."""
        said = "; ".join(failures.values())
        return ConnectionFailed(f"{what}: {said}" if said else what, code=code)

    def _wait_until(self, point: float) -> None:
        """Not ended by `wake`, which is kept for whoever waits for it, but by `close`."""
        woken = False
        while not self._closed and time.monotonic() < point:
            woken = self._waker.wait(point) or woken
        if woken:
            self._waker.wake()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionLost("the client has been closed", retriable=False)

    def _backoff(self, address: Address) -> Backoff:
        found = self._backoffs.get(address)
        if found is None:
            found = Backoff(self.settings.reconnect_backoff_s, self.settings.reconnect_backoff_max_s, self._random)
            self._backoffs[address] = found
        return found

    def _deadline(self, deadline: float | None) -> float:
        return time.monotonic() + self.settings.request_timeout_s if deadline is None else deadline
