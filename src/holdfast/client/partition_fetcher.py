"""Fetches record batches of many partitions as bytes, from their leaders.

There is at most one request in flight to each broker, for all requested partitions that it leads. The caller sends the
next request before it decodes a response, so that the broker works meanwhile. The response waits in the kernel's
buffers until it is received. Only one thread may use a fetcher.

A broker's errors, and failures to reach it, are results of its partitions. The caller decides how long to retry.
"""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.client.errors import ConnectionFailed, RequestTimedOut, error_code
from holdfast.client.metadata import Metadata
from holdfast.types import TopicPartition
from holdfast.wire.apis.fetch import (
    FETCH,
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.wire.batch import Buffer
from holdfast.wire.error_codes import ErrorCode

LEADERS_VALID_S: Final = 60.0
_MAX_VERSION_WITH_TOPIC_NAMES: Final = 12
_READ_COMMITTED: Final = 1


@dataclass(frozen=True, slots=True)
class FetchSettings:
    read_committed: bool = True
    max_wait_ms: int = 250
    """How long a broker waits for records if it has none."""
    min_bytes: int = 1
    max_bytes: int = 8 * 1024 * 1024
    """The maximum size of a response. A larger batch is sent alone."""
    partition_max_bytes: int = 1024 * 1024


class FetchedPartition(NamedTuple):
    where: TopicPartition
    offset: int
    """The requested offset."""
    error: ErrorCode
    reason: str
    """The reason for the error, if more than its code is known."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    records: Buffer = b""
    """In the receive buffer: a reference to a part of them keeps the whole response in memory."""


class _InFlight(NamedTuple):
    connection: Connection
    correlation_id: int
    asked: Mapping[TopicPartition, int]
    deadline: float


class _Leader(NamedTuple):
    node_id: int
    epoch: int


class PartitionFetcher:
    def __init__(self, cluster: ClusterClient, settings: FetchSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._leaders: dict[TopicPartition, _Leader] = {}
        self._leaders_until = 0.0
        self._in_flight: dict[int, _InFlight] = {}
        """By the broker's id."""
        self._failed: list[FetchedPartition] = []

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(self, positions: Mapping[TopicPartition, int], deadline: float) -> None:
        """Requests records from these offsets on, except from leaders with a request in flight. Finding the leaders and
        connecting takes at most until the deadline."""
        pending = {where for one in self._in_flight.values() for where in one.asked}
        pending.update(one.where for one in self._failed)
        wanted = {where: at for where, at in positions.items() if where not in pending}
        for node_id, asked in self._by_leader(wanted, deadline).items():
            if node_id not in self._in_flight:
                self._send(node_id, asked, deadline)

    def _by_leader(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[int, dict[TopicPartition, int]]:
        if self._cluster.clock.now() >= self._leaders_until:
            self._leaders.clear()
        unknown = {where: at for where, at in wanted.items() if where not in self._leaders}
        if unknown:
            self._find_leaders(unknown, deadline)
        found: dict[int, dict[TopicPartition, int]] = {}
        for where, at in wanted.items():
            if where in self._leaders:
                found.setdefault(self._leaders[where].node_id, {})[where] = at
        return found

    def _find_leaders(self, wanted: Mapping[TopicPartition, int], deadline: float) -> None:
        try:
            metadata = self._cluster.metadata({topic for topic, _ in wanted}, deadline)
        except ConnectionFailed as failure:
            self._fail(wanted, ErrorCode.NETWORK_EXCEPTION, str(failure))
            return
        if not self._leaders:
            self._leaders_until = self._cluster.clock.now() + LEADERS_VALID_S
        for where, at in wanted.items():
            error = self._learn_leader(where, metadata)
            if error is not ErrorCode.NONE:
                self._fail({where: at}, error, error.name)

    def _learn_leader(self, where: TopicPartition, metadata: Metadata) -> ErrorCode:
        topic, partition = where
        if topic not in metadata.topics:
            return metadata.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = metadata.topics[topic]
        if partition >= found.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found.leaders[partition] not in metadata.nodes:
            return ErrorCode.LEADER_NOT_AVAILABLE
        self._leaders[where] = _Leader(found.leaders[partition], found.leader_epochs[partition])
        return ErrorCode.NONE

    def _send(self, node_id: int, asked: Mapping[TopicPartition, int], deadline: float) -> None:
        try:
            connection = self._cluster.node(node_id, deadline)
            version = connection.version_of(FETCH, _MAX_VERSION_WITH_TOPIC_NAMES)
            correlation_id = connection.send(self._fetch_request(asked), version)
        except ConnectionFailed as failure:
            self._fail(asked, ErrorCode.NETWORK_EXCEPTION, str(failure))
            return
        timeout_s = self._cluster.settings.request_timeout_s + self._settings.max_wait_ms / 1000
        self._in_flight[node_id] = _InFlight(connection, correlation_id, asked, self._cluster.clock.now() + timeout_s)

    def _fetch_request(self, asked: Mapping[TopicPartition, int]) -> FetchRequest:
        settings = self._settings
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, partition), at in asked.items():
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition,
                    current_leader_epoch=self._leaders[topic, partition].epoch,
                    fetch_offset=at,
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=_READ_COMMITTED if settings.read_committed else 0,
            topics=[FetchTopic(name, partitions=partitions) for name, partitions in topics.items()],
        )

    # -- responses -----------------------------------------------------------------------------------------------------

    def receive(self, deadline: float) -> list[FetchedPartition]:
        """The partitions of the responses that have arrived. Waits until the deadline for the first one."""
        answers, self._failed = self._failed, []
        if not answers:
            self._wait(deadline)
        for node_id, sent in list(self._in_flight.items()):
            if node_id not in self._in_flight:
                continue
            # With a single request, this waits for the response. Otherwise `_wait` has waited for the first one.
            until = deadline if len(self._in_flight) == 1 and not answers else 0.0
            answers += self._receive(node_id, sent, until)
        return answers

    def _wait(self, deadline: float) -> None:
        sent = [one.connection for one in self._in_flight.values()]
        if len(sent) < 2 or any(connection.pending or connection.closed for connection in sent):
            return
        poll = select.poll()
        for connection in sent:
            poll.register(connection, select.POLLIN)
        self._cluster.clock.poll(poll, deadline)

    def _receive(self, node_id: int, sent: _InFlight, deadline: float) -> list[FetchedPartition]:
        try:
            received = sent.connection.receive(min(deadline, sent.deadline))
            if received is None and self._cluster.clock.now() >= sent.deadline:
                sent.connection.close()  # its response could be mistaken for another one
                raise RequestTimedOut(f"{sent.connection.address}: no answer to Fetch in time")
        except ConnectionFailed as failure:
            del self._in_flight[node_id]
            self._fail(sent.asked, ErrorCode.NETWORK_EXCEPTION, str(failure))
            answers, self._failed = self._failed, []
            return answers
        if received is None:
            return []
        correlation_id, response = received
        # Two brokers at the same address share a connection, so this may be the response of the other one.
        for answered, one in self._in_flight.items():
            if one.connection is sent.connection and one.correlation_id == correlation_id:
                del self._in_flight[answered]
                return self._read(one.asked, response)
        return []

    def _read(self, asked: Mapping[TopicPartition, int], response: FetchResponse) -> list[FetchedPartition]:
        found = {
            (topic.topic, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        answers = []
        for where, at in asked.items():
            answer = found.get(where)
            code = error_code(response.error_code or (ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else 0))
            if answer is not None and not code:
                code = error_code(answer.error_code)
            if code is not ErrorCode.NONE:
                self._leaders.pop(where, None)
            answers.append(_answer(where, at, code, answer))
        return answers

    def _fail(self, asked: Mapping[TopicPartition, int], error: ErrorCode, reason: str) -> None:
        for where, at in asked.items():
            self._leaders.pop(where, None)
            self._failed.append(FetchedPartition(where, at, error, reason))

    def reset(self) -> None:
        """Drops all requests. A connection with a request in flight is closed."""
        for sent in self._in_flight.values():
            sent.connection.close()
        self._in_flight.clear()
        self._failed.clear()


def _answer(
    where: TopicPartition, at: int, code: ErrorCode, answer: FetchablePartitionResponse | None
) -> FetchedPartition:
    if answer is None or code is not ErrorCode.NONE:
        return FetchedPartition(where, at, code, code.name)
    records = cast(Buffer, answer.records or b"")  # decoded records are a part of the response
    return FetchedPartition(
        where,
        at,
        code,
        "",
        answer.high_watermark,
        answer.last_stable_offset,
        answer.aborted_transactions or (),
        records,
    )
