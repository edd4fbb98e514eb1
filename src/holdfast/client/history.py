"""The history of groups from Holdfast's ledger. Apache Kafka has no ledger."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConnectionFailed, HoldfastError, TopicError, error_code
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind
from holdfast.wire.apis.fetch import (
    FETCH,
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.wire.batch import HEADER_SIZE, LENGTH_OVERHEAD, parse_header
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.records import Record, decode_batch

_EVENT_LOG: Final = (LEDGER_TOPIC, 0)
_MAX_VERSION_WITH_TOPIC_NAMES: Final = 12
_FETCH_BYTES: Final = 1024 * 1024
_EVENTS_PER_READ: Final = 5_000
"""The number of events that are read at once when the ledger is read from its end."""
MAX_EVENTS_SCANNED: Final = 200_000
"""A group without an event among these has not rebalanced for long. Reading more would make the user wait too long."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    offset: int
    """Its offset in the ledger."""
    at_ms: int
    """By the broker's wall clock."""
    group_id: str
    kind: str
    generation: int
    """The group's generation after the event."""
    cause: str
    """Why it happened, as a sentence; `cause_code` is for programs."""
    fields: Mapping[str, Any]
    """All fields of the event, by the ledger's own names."""

    @property
    def cause_code(self) -> str | None:
        """One of `CauseCode`, or one of a newer broker; None if an older Holdfast wrote the event."""
        found = self.fields.get("cause_code")
        return found if isinstance(found, str) else None

    @property
    def member(self) -> str | None:
        """The member that caused it: its instance id, or else its member id."""
        found = self.fields.get("instance_id") or self.fields.get("member_id")
        return found if isinstance(found, str) else None

    @property
    def epoch(self) -> int | None:
        """The assignment epoch after the event; None if an older Holdfast wrote it."""
        found = self.fields.get("epoch")
        return found if isinstance(found, int) else None

    @property
    def instance_ids(self) -> Sequence[str]:
        """The registered members that the event concerns."""
        found = self.fields.get("instance_ids")
        return [one for one in found if isinstance(one, str)] if isinstance(found, list) else ()

    @property
    def previous_member(self) -> str | None:
        """The member id of the member that was replaced."""
        found = self.fields.get("previous_member_id")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class LastRebalance:
    generation: int
    """The group's generation after its latest event."""
    at_ms: int | None
    """When the latest rebalance began; None if the ledger no longer contains it."""
    cause: str | None
    """As a sentence."""
    cause_code: str | None
    """None if an older Holdfast wrote the event."""
    member: str | None
    reason: str | None
    """The client's own."""
    unassigned_ms: int | None
    """None while it is in progress."""


class EventLog:
    """Reads the ledger from the broker. Each call ends by its deadline."""

    def __init__(self, network: ClusterClient) -> None:
        self._cluster = network

    def bounds(self, deadline: float) -> tuple[int, int] | None:
        """The start and end offsets of the ledger; None if there is no ledger."""
        metadata = self._cluster.metadata([LEDGER_TOPIC], deadline)
        if metadata.errors.get(LEDGER_TOPIC) is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicError(
                f"the ledger cannot be read: it needs READ on the topic {LEDGER_TOPIC}",
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        if LEDGER_TOPIC not in metadata.topics:
            return None
        first = list_offsets(self._cluster, {_EVENT_LOG: EARLIEST}, deadline)[_EVENT_LOG]
        return first, list_offsets(self._cluster, {_EVENT_LOG: LATEST}, deadline)[_EVENT_LOG]

    def offset_at(self, time_ms: int, deadline: float) -> int | None:
        """The offset of the first event at or after this time; None if there is none yet."""
        offset = list_offsets(self._cluster, {_EVENT_LOG: time_ms}, deadline)[_EVENT_LOG]
        return offset if offset >= 0 else None

    def events(self, first: int, end: int, deadline: float) -> Iterator[HistoryEvent]:
        """The events from `first` to before `end` that have not been deleted."""
        while first < end:
            events, after = self.read(first, 0, deadline)
            yield from (event for event in events if event.offset < end)
            if after == first:
                return
            first = after

    def read(self, offset: int, wait_ms: int, deadline: float) -> tuple[list[HistoryEvent], int]:
        """The events from an offset on, and the offset after them. If there are none, waits up to `wait_ms` for one."""
        while True:
            trouble: HoldfastError
            try:
                answer = self._fetch(offset, wait_ms, deadline)
            except ConnectionFailed as failure:
                trouble = failure
            else:
                if not answer.error_code:
                    return _read(answer, offset)
                code = error_code(answer.error_code)
                trouble = TopicError(f"the ledger cannot be read: {code.name}", code=code)
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Retention has deleted the oldest events, or the broker lost its data.
                    first, end = self.bounds(deadline) or (0, 0)
                    offset = first if offset < first else end
            retriable = trouble.retriable or trouble.code is ErrorCode.OFFSET_OUT_OF_RANGE
            if not retriable or not self._cluster.pause_before_retry(deadline):
                raise trouble

    def _fetch(self, offset: int, wait_ms: int, deadline: float) -> FetchablePartitionResponse:
        leader = self._cluster.metadata([LEDGER_TOPIC], deadline).topic(LEDGER_TOPIC).leaders[0]
        connection = self._cluster.node(leader, deadline)
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(LEDGER_TOPIC, partitions=[wanted])],
        )
        version = connection.version_of(FETCH, _MAX_VERSION_WITH_TOPIC_NAMES)
        until = max(deadline, self._cluster.clock.now() + wait_ms / 1000 + 1)
        response: FetchResponse = connection.ask(request, until, version)
        if response.error_code or not response.responses:
            return FetchablePartitionResponse(0, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, 0)
        return response.responses[0].partitions[0]


def last_rebalances(ledger: EventLog, group_ids: Collection[str], deadline: float) -> dict[str, LastRebalance]:
    """The latest rebalance of each group that has events in the ledger."""
    searches = {group_id: _Search() for group_id in group_ids}
    try:
        bounds = ledger.bounds(deadline)
    except TopicError as refused:
        if refused.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        bounds = None  # the rest of a group's description needs no permission on the ledger
    if bounds is not None:
        first, end = max(bounds[0], bounds[1] - MAX_EVENTS_SCANNED), bounds[1]
        while end > first and not all(one.done for one in searches.values()):
            start = max(first, end - _EVENTS_PER_READ)
            for event in reversed(list(ledger.events(start, end, deadline))):
                if event.group_id in searches:
                    searches[event.group_id].add(event)
            end = start
    return {group_id: found for group_id, one in searches.items() if (found := one.found()) is not None}


class _Search:
    """The latest rebalance of one group, collected from its latest event backwards."""

    def __init__(self) -> None:
        self._latest: HistoryEvent | None = None
        self._assigned: HistoryEvent | None = None
        self._started: HistoryEvent | None = None
        self.done = False

    def add(self, event: HistoryEvent) -> None:
        if self.done:
            return
        if self._latest is None:
            self._latest = event
        if event.kind == EventKind.DELETED and event is not self._latest:
            self.done = True  # earlier events are of another group with the same name
        elif event.kind == EventKind.ASSIGNED and self._assigned is None:
            self._assigned = event
        elif event.kind == EventKind.REBALANCE_STARTED:
            self._started = event
            self.done = True

    def found(self) -> LastRebalance | None:
        if self._latest is None:
            return None
        fields = {} if self._started is None else self._started.fields
        still = None if self._assigned is None else self._assigned.fields.get("unassigned_ms")
        return LastRebalance(
            self._latest.generation,
            None if self._started is None else self._started.at_ms,
            None if self._started is None else self._started.cause,
            None if self._started is None else self._started.cause_code,
            None if self._started is None else self._started.member,
            fields.get("reason"),
            still,
        )


def _read(answer: FetchablePartitionResponse, offset: int) -> tuple[list[HistoryEvent], int]:
    data = b"" if answer.records is None else bytes(answer.records)  # type: ignore[call-overload]  # decoded: bytes
    records, after = _records(data)
    events = (_event(record) for record in records if record.offset >= offset)
    return [event for event in events if event is not None], max(offset, after)


def _records(data: bytes) -> tuple[Sequence[Record], int]:
    """The records of all complete batches, and the offset after them. The last batch may be truncated."""
    found: list[Record] = []
    position = after = 0
    while len(data) - position >= HEADER_SIZE:
        header = parse_header(data, position)
        end = position + LENGTH_OVERHEAD + header.batch_length
        if end > len(data):
            break
        try:
            found += () if header.is_control else decode_batch(data, position)
        except WireError as failure:
            raise TopicError(f"the ledger has a batch that cannot be read: {failure}") from failure
        after = header.base_offset + header.last_offset_delta + 1
        position = end
    return found, after


def _event(record: Record) -> HistoryEvent | None:
    """None if the record is not an event. Any client may write to the topic."""
    try:
        fields = json.loads(record.value or b"")
        group_id, kind, generation = fields["group_id"], fields["kind"], fields["generation"]
        cause = fields.get("cause", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    texts = (group_id, kind, cause)
    if not all(isinstance(one, str) for one in texts) or not isinstance(generation, int):
        return None
    return HistoryEvent(record.offset, record.timestamp, group_id, kind, generation, cause, fields)
