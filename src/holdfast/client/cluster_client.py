"""The connections of one member, consumer or admin: to any broker, to a given broker, or to the coordinator of a group.

One thread uses a cluster client, but any thread may call `wake` and `close`. Each thread has its own cluster client.

Metadata responses contain the addresses of the brokers; they are requested again after each failure. If no known
address answers, the bootstrap servers are used again. Every call ends by its deadline (a time of the client's clock; by
default, after `request.timeout.ms`). If it fails, it raises one exception that names every address and its error.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from holdfast.client.addresses import Address
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
from holdfast.client.group_servers import BOOTSTRAP
from holdfast.client.metadata import Metadata, Node, metadata_request, read_metadata
from holdfast.client.runtime import Runtime
from holdfast.client.settings import NetworkSettings
from holdfast.client.transport import Waker
from holdfast.membership.backoff import Backoff
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.apis.metadata import METADATA, MetadataResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

_FIRST_BATCHED_FIND_COORDINATOR = 4
_MAX_RETRY_BACKOFF_S = 1.0
_JITTER = (0.75, 1.5)
"""Jitter, so that a thousand clients that lost one broker do not all reconnect at the same time."""

Failures = dict[Address | int, str]
"""The error of each address or broker, as a text that names it."""


def backoff_within(min_s: float, max_s: float, randomness: random.Random) -> Backoff:
    """Every delay is within these bounds."""
    return Backoff(min_s, max_s, lambda: randomness.uniform(*_JITTER), clamp=True)


class ClusterClient:
    def __init__(self, settings: NetworkSettings, randomness: random.Random | None = None, *, runtime: Runtime) -> None:
        self.settings = settings
        self._random = randomness or random.Random()
        self.clock = runtime.clock
        self._runtime = runtime
        self._waker = Waker(runtime.clock)
        self._closed = False
        self._nodes: dict[int, Node] = {}
        self._shared: dict[Address, Connection] = {}
        self._backoffs: dict[Address, Backoff] = {}
        self._lock = threading.Lock()  # of the set only: `close` may be called while a connection is being made
        self._open: WeakSet[Connection] = WeakSet()

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers from the last Metadata response."""
        return self._nodes

    def for_groups(self, settings: NetworkSettings) -> ClusterClient:
        """The client for the servers of the groups: this one, unless they have settings of their own."""
        return self if settings is self.settings else ClusterClient(settings, runtime=self._runtime)

    # -- any thread ----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def wake(self) -> None:
        """Ends a `pause`, or a `receive` of any connection of this client. If there is none, it ends the next one."""
        self._waker.wake()

    def close(self) -> None:
        """Closes every connection, including those that callers own. Calls that wait raise ConnectionLost."""
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
        """A connection to any broker, for short requests. All callers share it."""
        for connection in self._shared.values():
            if not connection.closed:
                return connection
        deadline = self._deadline(deadline)
        failures: Failures = {}
        while True:
            due = self._ready_addresses(deadline, failures)
            for number, address in enumerate(due):
                now = self.clock.now()
                # Leaves time for the next servers if one never answers.
                attempt_deadline = now + max(deadline - now, 0) / (len(due) - number)
                with self._collect_failure(address, failures):
                    return self._connected(address, attempt_deadline)

    def node(self, node_id: int, deadline: float | None = None) -> Connection:
        """The shared connection to a given broker, at its current address."""
        deadline = self._deadline(deadline)
        what = f"broker {node_id} cannot be reached"
        failures: Failures = {}
        while True:
            if node_id not in self._nodes:
                with self._prefer_collected(what, failures):
                    self.metadata((), deadline)
            known = self._nodes.get(node_id)
            if known is None:
                failures[node_id] = f"the cluster has no broker {node_id}"
            else:
                with self._collect_failure(known.address, failures):
                    return self._connected(known.address, deadline)
            self._retry_or_raise(deadline, what, failures)
            self._nodes.pop(node_id, None)

    def open(self, address: Address, deadline: float | None = None) -> Connection:
        """A separate connection to this address, for long waits. The caller closes it."""
        connection = Connection(
            *address,
            client_id=self.settings.client_id,
            security=self.settings.security,
            request_timeout_s=self.settings.request_timeout_s,
            max_response_bytes=self.settings.max_response_bytes,
            waker=self._waker,
            family=self.settings.family,
            runtime=self._runtime,
        )
        with self._lock:
            self._open.add(connection)
        self._check_open()  # after it was added to the set, where `close` finds it
        backoff = self._backoff(address)
        setup = self.clock.now() + self.settings.connection_setup_timeout_s
        try:
            connection.connect(min(self._deadline(deadline), setup))
        except HoldfastError as failure:
            # An earlier error says more than a timeout, because the last attempt always ends with the caller's
            # deadline.
            silent = isinstance(failure, RequestTimedOut) and backoff.last_error
            backoff.failed(self.clock.now(), backoff.last_error if silent else str(failure))
            raise
        backoff.succeeded()
        return connection

    def _connected(self, address: Address, deadline: float) -> Connection:
        connection = self._shared.get(address)
        if connection is None or connection.closed:
            connection = self._shared[address] = self.open(address, deadline)
        return connection

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, message: Any, deadline: float | None = None) -> Any:
        """The response of any broker. If the connection is lost, another broker gets the request, so it must be safe to
        repeat."""
        return self._ask_any(message.API, lambda _: message, self._deadline(deadline))

    def metadata(
        self, topics: Iterable[str] | None = None, deadline: float | None = None, *, may_create: bool = False
    ) -> Metadata:
        """These topics, or all of them; `()` requests only the brokers."""
        deadline = self._deadline(deadline)
        wanted = None if topics is None else list(topics)
        while True:
            response: MetadataResponse = self._ask_any(
                METADATA, lambda version: metadata_request(wanted, version, may_create=may_create), deadline
            )
            if not response.error_code:
                found = read_metadata(response)
                if found.nodes:  # a broker that is just starting lists none, not even itself
                    self._update_nodes(found.nodes)
                return found
            code = error_code(response.error_code)
            if code != ErrorCode.REBOOTSTRAP_REQUIRED:
                raise ConnectionFailed(f"Metadata is answered with {code.name}", code=code)
            # KIP-1102: everything known of the cluster is outdated.
            self._update_nodes({})
            self._retry_or_raise(deadline, f"Metadata is answered with {code.name}", {}, code)

    def find_coordinator(self, group_id: str, deadline: float | None = None) -> Node:
        """The coordinator of the group. Waits until there is one, for example after the first start."""
        deadline = self._deadline(deadline)
        backoff = backoff_within(self.settings.retry_backoff_s, _MAX_RETRY_BACKOFF_S, self._random)
        while True:
            found = self._request_coordinator(group_id, deadline)
            if not found.error_code:
                return Node(found.node_id, found.host, found.port)
            code = error_code(found.error_code)
            what = f"the coordinator of group {group_id!r} cannot be found: {code.name}"
            if found.error_message:
                what += f" ({found.error_message})"
            failure = GroupError(what, code=code)
            backoff.failed(self.clock.now())
            if not failure.retriable or backoff.ready_at >= deadline:
                raise failure
            self._wait_until(backoff.ready_at)

    def coordinator(self, group_id: str, deadline: float | None = None) -> Connection:
        """A separate connection to the group's coordinator, because a parked join blocks it. The caller closes it."""
        deadline = self._deadline(deadline)
        what = f"the coordinator of group {group_id!r} cannot be reached"
        failures: Failures = {}
        while True:
            with self._prefer_collected(what, failures):
                node = self.find_coordinator(group_id, deadline)
            with self._collect_failure(node.address, failures):
                return self.open(node.address, deadline)
            self._retry_or_raise(deadline, what, failures)

    def _request_coordinator(self, group_id: str, deadline: float) -> FoundCoordinator:
        def request(version: int) -> FindCoordinatorRequest:
            if version >= _FIRST_BATCHED_FIND_COORDINATOR:
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
            with self._collect_failure(connection.address, failures):
                until = min(deadline, self.clock.now() + self.settings.request_timeout_s)
                return connection.ask(request(version), until, version)
            self._backoff(connection.address).failed(self.clock.now(), failures[connection.address])
            self._retry_or_raise(deadline, f"{api.name} is not answered", failures)

    def _update_nodes(self, nodes: Mapping[int, Node]) -> None:
        """Updates the addresses, and drops connections and backoffs of addresses that are no longer listed."""
        self._nodes = dict(nodes)
        known = {node.address for node in nodes.values()} | set(self.settings.bootstrap)
        for address in [address for address in self._shared if address not in known]:
            self._shared.pop(address).close()
        for address in [address for address in self._backoffs if address not in known]:
            del self._backoffs[address]

    # -- retries -------------------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> bool:
        """Waits. Returns True if `wake` ended the wait."""
        self._check_open()
        return self._waker.wait(self.clock.now() + seconds)

    def pause_before_retry(self, deadline: float) -> bool:
        """Waits for retry.backoff.ms. If the deadline is before that, returns False at once."""
        if self.clock.now() + self.settings.retry_backoff_s >= deadline:
            return False
        self.pause(self.settings.retry_backoff_s)
        return True

    @contextmanager
    def _collect_failure(self, address: Address, failures: Failures) -> Iterator[None]:
        """Collects a retriable failure, so that the caller continues; raises any other."""
        try:
            yield
        except (ConnectionFailed, AuthenticationFailed) as failure:
            self._check_open()
            if not failure.retriable:
                raise
            if not isinstance(failure, RequestTimedOut) or address not in failures:
                failures[address] = str(failure)

    @contextmanager
    def _prefer_collected(self, what: str, failures: Mapping[Address | int, str]) -> Iterator[None]:
        """If the call times out, an earlier failure is the better reason."""
        try:
            yield
        except ConnectionFailed as failure:
            if not failures or not failure.retriable:
                raise
            raise self._unreachable(what, failures) from failure

    def _ready_addresses(self, deadline: float, failures: Mapping[Address | int, str]) -> list[Address]:
        """The addresses that may be tried now, brokers before bootstrap servers. Waits until there is one."""
        addresses = [node.address for node in self._nodes.values()]
        self._random.shuffle(addresses)
        candidates = list(dict.fromkeys([*addresses, *self.settings.bootstrap]))
        backoffs = {address: self._backoff(address) for address in candidates}
        ready_at = min(backoff.ready_at for backoff in backoffs.values())
        if max(ready_at, self.clock.now()) >= deadline and (failures or ready_at > 0):
            if not failures:
                # Nothing was tried for this caller. It waits until its deadline, so that it does not retry in a tight
                # loop.
                self._wait_until(deadline)
            raise self._unreachable(
                self._no_broker(),
                {address: backoff.last_error for address, backoff in backoffs.items() if backoff.last_error},
            )
        self._wait_until(ready_at)
        now = self.clock.now()
        return [address for address, backoff in backoffs.items() if backoff.ready_at <= now]

    def _retry_or_raise(
        self, deadline: float, what: str, failures: Mapping[Address | int, str], code: ErrorCode | None = None
    ) -> None:
        resume = self.clock.now() + self.settings.retry_backoff_s * self._random.uniform(0.75, 1.25)
        if resume >= deadline:
            raise self._unreachable(what, failures, code)
        self._wait_until(resume)

    def _unreachable(
        self, what: str, failures: Mapping[Address | int, str], code: ErrorCode | None = None
    ) -> ConnectionFailed:
        """Each failure already names its address."""
        said = "; ".join(failures.values())
        return ConnectionFailed(f"{what}: {said}" if said else what, code=code)

    def _no_broker(self) -> str:
        setting = self.settings.bootstrap_setting
        return f"no broker{'' if setting == BOOTSTRAP else f' of {setting}'} can be reached"

    def _wait_until(self, point: float) -> None:
        """`close` ends the wait; `wake` does not, and stays pending for the thread that waits for it."""
        woken = False
        while not self._closed and self.clock.now() < point:
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
            settings = self.settings
            found = backoff_within(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, self._random)
            self._backoffs[address] = found
        return found

    def _deadline(self, deadline: float | None) -> float:
        return self.clock.now() + self.settings.request_timeout_s if deadline is None else deadline
