"""Combines the joins of the members of one process into one request (JoinGroups).

Only joins are combined. The broker responds to a batch when the last of its members has its response, so a batch
contains only joins that are sent at the same time and for the same reason. A single join is sent as JoinGroup. A batch
has its own connection, and each member uses its own connection for all other requests: a broker responds to one
connection in order, so on a shared connection a follower's SyncGroup would block the leader's for ever.

Each batch has a thread from its first join to its response. Members call from their own threads; the thread of the
batch delivers the responses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import HoldfastError
from holdfast.client.runtime import Runtime
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.apis.join_groups import JoinGroupsMember, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.error_codes import ErrorCode

QUIET_PERIOD_S: Final = 0.005
"""A batch is complete when no join has been added for this long."""
MAX_COLLECT_S: Final = 0.05
MAX_BATCH_SIZE: Final = 1_000
"""The maximum number of members that a broker accepts in one request. Further members are sent in another."""
EXPECTED_TIMEOUT_S: Final = 0.5
"""How long a batch waits for expected joins: at the start, those of all members, which find their coordinator one after
the other; later, those of members that got their member id in the previous response."""

JoinHandler = Callable[[JoinGroupResponse | None], None]
"""Gets the response; None if there is none, because the connection broke or the request timed out."""

logger = logging.getLogger("holdfast.client")


@dataclass(eq=False, slots=True)
class PendingJoin:
    """One member's join."""

    network: NetworkSettings
    """The batch connects with the settings of its first join."""
    coordinator: Address
    request: JoinGroupRequest
    deadline: float
    on_response: JoinHandler
    join_alone: Callable[[], None]
    """There is no other join. The member sends its own JoinGroup."""
    batch: _JoinBatch | None = None

    @property
    def batch_key(self) -> tuple[Any, ...]:
        """The properties that the joins of one batch have in common."""
        request = self.request
        timeouts = request.session_timeout_ms, request.rebalance_timeout_ms
        return self.coordinator, request.group_id, request.protocol_type, *timeouts, request.reason


@dataclass(eq=False, slots=True)
class _JoinBatch:
    collect_deadline: float
    expected: int
    """The number of expected joins, or 0."""
    cluster: ClusterClient
    joins: list[PendingJoin] = field(default_factory=list)
    is_open: bool = True
    changed: threading.Event = field(default_factory=threading.Event)


class JoinBatcher:
    def __init__(self, members: int, *, runtime: Runtime) -> None:
        """For this many members, which all start at the same time."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._members = members
        self._expected = members
        self._lock = threading.Lock()
        self._open_batches: dict[tuple[Any, ...], _JoinBatch] = {}

    # -- for the members -----------------------------------------------------------------------------------------------

    def submit(self, join: PendingJoin) -> None:
        with self._lock:
            self._add(join)

    def cancel(self, join: PendingJoin) -> None:
        """The member no longer waits for it and gets no response. The last one to cancel closes the batch."""
        with self._lock:
            batch, join.batch = join.batch, None
            if batch is None:
                return
            if batch.is_open:  # otherwise its index in the request is needed to match the responses
                batch.joins.remove(join)
            if all(one.batch is not batch for one in batch.joins):
                self._close(batch)
                batch.cluster.close()

    def _add(self, join: PendingJoin) -> None:
        batch = self._open_batches.get(join.batch_key)
        if batch is None:
            expected, self._expected = self._expected, 0
            timeout_s = EXPECTED_TIMEOUT_S if expected else MAX_COLLECT_S
            batch = _JoinBatch(
                self._clock.now() + timeout_s, expected, ClusterClient(join.network, runtime=self._runtime)
            )
            self._open_batches[join.batch_key] = batch
            name = f"holdfast-{join.request.group_id}-joins"
            threading.Thread(target=self._run_batch, args=(batch,), name=name, daemon=True).start()
        batch.joins.append(join)
        join.batch = batch
        if len(batch.joins) >= min(batch.expected or self._members, MAX_BATCH_SIZE):
            self._close(batch)
        batch.changed.set()

    def _close(self, batch: _JoinBatch) -> None:
        batch.is_open = False
        for key in [key for key, one in self._open_batches.items() if one is batch]:
            del self._open_batches[key]
        batch.changed.set()

    # -- a batch's thread ----------------------------------------------------------------------------------------------

    def _run_batch(self, batch: _JoinBatch) -> None:
        joins = self._collect(batch)
        with batch.cluster:
            try:
                if len(joins) > 1:
                    self._send_batch(batch.cluster, joins)
                elif joins and self._release(joins[0], batch):
                    joins[0].join_alone()
            finally:  # also after an error, so that no member waits for ever
                for join in joins:
                    if self._release(join, batch):
                        join.on_response(None)

    def _collect(self, batch: _JoinBatch) -> list[PendingJoin]:
        """The joins that were added before a pause, or before the wait for the expected ones ended."""
        while True:
            with self._lock:
                left = batch.collect_deadline - self._clock.now()
                if batch.is_open and left <= 0:
                    self._close(batch)
                if not batch.is_open:
                    return list(batch.joins)
                wait_s = left if batch.expected else min(left, QUIET_PERIOD_S)
                batch.changed.clear()
            if not self._clock.wait(batch.changed, wait_s):
                with self._lock:
                    self._close(batch)

    def _send_batch(self, cluster: ClusterClient, joins: Sequence[PendingJoin]) -> None:
        deadline = min(join.deadline for join in joins)
        try:
            connection = cluster.open(joins[0].coordinator, deadline)
            response: JoinGroupsResponse = connection.ask(_request(joins), deadline)
        except HoldfastError as error:
            if not cluster.closed:
                logger.warning("%d members could not join together: %s", len(joins), error)
            return
        if len(response.results) != len(joins):
            logger.warning("%d members joined together, and %d were answered", len(joins), len(response.results))
            return
        results = list(zip(joins, response.results, strict=True))
        if any(result.error_code == ErrorCode.MEMBER_ID_REQUIRED for _, result in results):
            results = self._requeue_unserved(results)
        for join, result in results:
            if self._release(join, join.batch):
                join.on_response(_response(result))

    def _requeue_unserved(
        self, results: Sequence[tuple[PendingJoin, JoinGroupsResult]]
    ) -> list[tuple[PendingJoin, JoinGroupsResult]]:
        """KIP-394: if some members only got a member id, the others were not served. Their joins wait here and are sent
        again together with the next joins of the former. Returns the results for the former."""
        served = []
        with self._lock:
            self._expected = sum(join.batch is not None for join, _ in results)
            for join, result in results:
                if result.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                    served.append((join, result))
                elif join.batch is not None:
                    self._add(join)
        return served

    def _release(self, join: PendingJoin, batch: _JoinBatch | None) -> bool:
        """Whether the member still waited for this batch. From now on it does not."""
        with self._lock:
            waits = join.batch is not None and join.batch is batch
            if waits:
                join.batch = None
        return waits


def _request(joins: Sequence[PendingJoin]) -> JoinGroupsRequest:
    """With the content of their own requests."""
    common = joins[0].request
    return JoinGroupsRequest(
        group_id=common.group_id,
        session_timeout_ms=common.session_timeout_ms,
        rebalance_timeout_ms=common.rebalance_timeout_ms,
        protocol_type=common.protocol_type,
        members=[
            JoinGroupsMember(
                member_id=join.request.member_id,
                group_instance_id=join.request.group_instance_id,
                protocols=join.request.protocols,
                reason=join.request.reason,
            )
            for join in joins
        ],
    )


def _response(result: JoinGroupsResult) -> JoinGroupResponse:
    """As the response to its own request."""
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=result.members,
    )
