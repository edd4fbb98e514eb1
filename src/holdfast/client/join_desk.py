"""The desk at which the members of one process hand in their joins, so that they go out as one request (JoinGroups).

Only the join is done together. The answer to a batch comes when the last of its members has its own, so a batch takes
in only those who come at the same time and for the same reason; whoever comes alone joins by itself, as everywhere. The
connection is the batch's own: each member keeps its own for everything else, because requests on one connection are
answered in order, and a follower's SyncGroup before the leader's would be waited for in vain.

Each batch has a thread that lives from its first member's coming to its answer. Members call from their drivers'
threads, and are answered from the batch's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.addresses import Address
from holdfast.client.errors import HoldfastError
from holdfast.client.network import Network
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.apis.join_groups import JoinGroupsMember, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.error_codes import ErrorCode

LULL_S: Final = 0.005
"""A batch is complete when nobody has come for so long."""
LONGEST_GATHERING_S: Final = 0.05
MOST_TOGETHER: Final = 1_000
"""Members in one request; a broker takes no more. The next ones go out in another."""
EXPECTED_WITHIN_S: Final = 0.5
"""How long those are waited for who are known to come: all members when they start, for they find their coordinator one
after the other; and those who were sent away for an id."""

Answer = Callable[[JoinGroupResponse | None], None]
"""Gets the response; None if there is none, because the connection broke or the time is over."""

logger = logging.getLogger("holdfast.client")


@dataclass(eq=False, slots=True)
class HandedIn:
    """One member's join."""

    network: NetworkSettings
    """How the batch of the one who comes first reaches the coordinator."""
    coordinator: Address
    request: JoinGroupRequest
    deadline: float
    answer: Answer
    alone: Callable[[], None]
    """Nobody else came: the member is to join by itself."""
    batch: _Batch | None = None

    @property
    def goes_with(self) -> tuple[Any, ...]:
        """What the joins of one batch have in common."""
        request = self.request
        timeouts = request.session_timeout_ms, request.rebalance_timeout_ms
        return self.coordinator, request.group_id, request.protocol_type, *timeouts, request.reason


@dataclass(eq=False, slots=True)
class _Batch:
    gathering_ends: float
    expected: int
    """How many are known to come; 0 where nothing is known."""
    network: Network
    joins: list[HandedIn] = field(default_factory=list)
    is_open: bool = True
    came: threading.Event = field(default_factory=threading.Event)


class JoinDesk:
    def __init__(self, members: int) -> None:
        """For so many members, who all begin at the same time."""
        self._members = members
        self._expected = members
        self._lock = threading.Lock()
        self._gathering: dict[tuple[Any, ...], _Batch] = {}

    # -- for the members -----------------------------------------------------------------------------------------------

    def hand_in(self, join: HandedIn) -> None:
        with self._lock:
            self._add(join)

    def withdraw(self, join: HandedIn) -> None:
        """The member does not wait for it any more, and is not answered. The last one closes the door."""
        with self._lock:
            batch, join.batch = join.batch, None
            if batch is None:
                return
            if batch.is_open:  # else its place in the request says whose answer is whose
                batch.joins.remove(join)
            if all(one.batch is not batch for one in batch.joins):
                self._close(batch)
                batch.network.close()

    def _add(self, join: HandedIn) -> None:
        batch = self._gathering.get(join.goes_with)
        if batch is None:
            expected, self._expected = self._expected, 0
            patience_s = EXPECTED_WITHIN_S if expected else LONGEST_GATHERING_S
            batch = _Batch(time.monotonic() + patience_s, expected, Network(join.network))
            self._gathering[join.goes_with] = batch
            name = f"holdfast-{join.request.group_id}-joins"
            threading.Thread(target=self._live, args=(batch,), name=name, daemon=True).start()
        batch.joins.append(join)
        join.batch = batch
        if len(batch.joins) >= min(batch.expected or self._members, MOST_TOGETHER):
            self._close(batch)
        batch.came.set()

    def _close(self, batch: _Batch) -> None:
        batch.is_open = False
        for key in [key for key, gathering in self._gathering.items() if gathering is batch]:
            del self._gathering[key]
        batch.came.set()

    # -- a batch's thread ----------------------------------------------------------------------------------------------

    def _live(self, batch: _Batch) -> None:
        joins = self._gathered(batch)
        with batch.network:
            try:
                if len(joins) > 1:
                    self._join_together(batch.network, joins)
                elif joins and self._let_go(joins[0], batch):
                    joins[0].alone()
            finally:  # nobody waits for ever, whatever happened
                for join in joins:
                    if self._let_go(join, batch):
                        join.answer(None)

    def _gathered(self, batch: _Batch) -> list[HandedIn]:
        """Everybody who came before there was a lull, or before the time for those who are expected was up."""
        while True:
            with self._lock:
                left = batch.gathering_ends - time.monotonic()
                if batch.is_open and left <= 0:
                    self._close(batch)
                if not batch.is_open:
                    return list(batch.joins)
                wait_s = left if batch.expected else min(left, LULL_S)
                batch.came.clear()
            if not batch.came.wait(wait_s):
                with self._lock:
                    self._close(batch)

    def _join_together(self, network: Network, joins: Sequence[HandedIn]) -> None:
        deadline = min(join.deadline for join in joins)
        try:
            connection = network.open(joins[0].coordinator, deadline)
            response: JoinGroupsResponse = connection.ask(_request(joins), deadline)
        except HoldfastError as error:
            if not network.closed:
                logger.warning("%d members could not join together: %s", len(joins), error)
            return
        if len(response.results) != len(joins):
            logger.warning("%d members joined together, and %d were answered", len(joins), len(response.results))
            return
        results = list(zip(joins, response.results, strict=True))
        if any(result.error_code == ErrorCode.MEMBER_ID_REQUIRED for _, result in results):
            results = self._keep_those_who_were_left_alone(results)
        for join, result in results:
            if self._let_go(join, join.batch):
                join.answer(_response(result))

    def _keep_those_who_were_left_alone(
        self, results: Sequence[tuple[HandedIn, JoinGroupsResult]]
    ) -> list[tuple[HandedIn, JoinGroupsResult]]:
        """KIP-394: where some were given ids to come back with, nothing was done for the others. They wait here, and go
        out again with those who come back; returns these."""
        told = []
        with self._lock:
            self._expected = sum(join.batch is not None for join, _ in results)
            for join, result in results:
                if result.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                    told.append((join, result))
                elif join.batch is not None:
                    self._add(join)
        return told

    def _let_go(self, join: HandedIn, batch: _Batch | None) -> bool:
        """Whether the member still waits for this batch; from now on it does not."""
        with self._lock:
            waits = join.batch is not None and join.batch is batch
            if waits:
                join.batch = None
        return waits


def _request(joins: Sequence[HandedIn]) -> JoinGroupsRequest:
    """What their own requests would say."""
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
    """What the answer to its own request would be."""
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
