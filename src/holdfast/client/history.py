"""What happened to groups, and why, as Holdfast's ledger tells it. Apache Kafka has no ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.errors import ConnectionFailed, HoldfastError, TopicError, error_code
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.coordinator.ledger import LEDGER_TOPIC, EventKind
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

_LEDGER: Final = (LEDGER_TOPIC, 0)
_HIGHEST_WITH_TOPIC_NAMES: Final = 12
_FETCH_BYTES: Final = 1024 * 1024
_STRIDE: Final = 5_000
"""So many events are read at once when the ledger is read from its end."""
MOST_LOOKED_BACK: Final = 200_000
"""In events. A group that none of them tells of has not rebalanced for long; to read on would keep a person waiting."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    offset: int
    """Its place in the ledger."""
    at_ms: int
    """By the broker's wall clock."""
    group_id: str
    kind: str
    generation: int
    """The group's generation after the event."""
    cause: str
    fields: Mapping[str, Any]
    """Everything that was told, by the ledger's own names."""

    @property
    def member(self) -> str | None:
        """The member behind it: its instance id, or else its member id."""
        found = self.fields.get("instance_id") or self.fields.get("member_id")
        return found if isinstance(found, str) else None

    @property
    def epoch(self) -> int | None:
        """The assignment epoch after the event; None where an older Holdfast wrote it."""
        found = self.fields.get("epoch")
        return found if isinstance(found, int) else None

    @property
    def instance_ids(self) -> Sequence[str]:
        """The announced members that it is about."""
        found = self.fields.get("instance_ids")
        return [one for one in found if isinstance(one, str)] if isinstance(found, list) else ()

    @property
    def previous_member(self) -> str | None:
        """The member id of the one whose place the member took."""
        found = self.fields.get("previous_member_id")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class LastRebalance:
    generation: int
    """The group's generation by its latest event."""
    at_ms: int | None
    """When the latest rebalance began; None where the ledger has forgotten it."""
    cause: str | None
    member: str | None
    reason: str | None
    """The client's own."""
    stood_still_ms: int | None
    """None while it lasts."""


class Ledger:
    """The ledger as it lies on the broker; each call ends by its deadline."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def bounds(self, deadline: float) -> tuple[int, int] | None:
        """The offsets at which it begins and ends; None where there is no ledger."""
        metadata = self._network.metadata([LEDGER_TOPIC], deadline)
        if metadata.errors.get(LEDGER_TOPIC) is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicError(
                f"the ledger cannot be read: it needs READ on the topic {LEDGER_TOPIC}",
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        if LEDGER_TOPIC not in metadata.topics:
            return None
        first = list_offsets(self._network, {_LEDGER: EARLIEST}, deadline)[_LEDGER]
        return first, list_offsets(self._network, {_LEDGER: LATEST}, deadline)[_LEDGER]

    def at(self, time_ms: int, deadline: float) -> int | None:
        """The offset of the first event at or after this time; None where there is none yet."""
        offset = list_offsets(self._network, {_LEDGER: time_ms}, deadline)[_LEDGER]
        return offset if offset >= 0 else None

    def events(self, first: int, end: int, deadline: float) -> Iterator[HistoryEvent]:
        """Those from `first` to before `end`, as far as they are still there."""
        while first < end:
            events, after = self.read(first, 0, deadline)
            yield from (event for event in events if event.offset < end)
            if after == first:
                return
            first = after

    def read(self, offset: int, wait_ms: int, deadline: float) -> tuple[list[HistoryEvent], int]:
        """The events from an offset on, and the offset after them; waits so long for one if there is none."""
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
                    # The oldest events are deleted after a while, or the broker lost its data.
                    first, end = self.bounds(deadline) or (0, 0)
                    offset = first if offset < first else end
            retriable = trouble.retriable or trouble.code is ErrorCode.OFFSET_OUT_OF_RANGE
            if not retriable or time.monotonic() + self._network.settings.retry_backoff_s >= deadline:
                raise trouble
            self._network.pause(self._network.settings.retry_backoff_s)

    def _fetch(self, offset: int, wait_ms: int, deadline: float) -> FetchablePartitionResponse:
        leader = self._network.metadata([LEDGER_TOPIC], deadline).topic(LEDGER_TOPIC).leaders[0]
        connection = self._network.node(leader, deadline)
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(LEDGER_TOPIC, partitions=[wanted])],
        )
        version = connection.version_of(FETCH, _HIGHEST_WITH_TOPIC_NAMES)
        response: FetchResponse = connection.ask(request, max(deadline, time.monotonic() + wait_ms / 1000 + 1), version)
        if response.error_code or not response.responses:
            return FetchablePartitionResponse(0, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, 0)
        return response.responses[0].partitions[0]


def last_rebalances(ledger: Ledger, group_ids: Collection[str], deadline: float) -> dict[str, LastRebalance]:
    """The latest rebalance of each group that the ledger still tells of."""
    searches = {group_id: _Search() for group_id in group_ids}
    try:
        bounds = ledger.bounds(deadline)
    except TopicError as refused:
        if refused.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        bounds = None  # the rest of what is told of a group needs no right to the ledger
    if bounds is not None:
        first, end = max(bounds[0], bounds[1] - MOST_LOOKED_BACK), bounds[1]
        while end > first and not all(one.done for one in searches.values()):
            start = max(first, end - _STRIDE)
            for event in reversed(list(ledger.events(start, end, deadline))):
                if event.group_id in searches:
                    searches[event.group_id].look_at(event)
            end = start
    return {group_id: found for group_id, one in searches.items() if (found := one.found()) is not None}


class _Search:
    """Of one group, from its latest event backwards."""

    def __init__(self) -> None:
        self._latest: HistoryEvent | None = None
        self._assigned: HistoryEvent | None = None
        self._began: HistoryEvent | None = None
        self.done = False

    def look_at(self, event: HistoryEvent) -> None:
        if self.done:
            return
        if self._latest is None:
            self._latest = event
        if event.kind == EventKind.DELETED and event is not self._latest:
            self.done = True  # what is before it was another group of the same name
        elif event.kind == EventKind.ASSIGNED and self._assigned is None:
            self._assigned = event
        elif event.kind == EventKind.REBALANCE_STARTED:
            self._began = event
            self.done = True

    def found(self) -> LastRebalance | None:
        if self._latest is None:
            return None
        told = {} if self._began is None else self._began.fields
        still = None if self._assigned is None else self._assigned.fields.get("stood_still_ms")
        return LastRebalance(
            self._latest.generation,
            None if self._began is None else self._began.at_ms,
            None if self._began is None else self._began.cause,
            None if self._began is None else self._began.member,
            told.get("reason"),
            still,
        )


def _read(answer: FetchablePartitionResponse, offset: int) -> tuple[list[HistoryEvent], int]:
    data = b"" if answer.records is None else bytes(answer.records)  # type: ignore[call-overload]  # decoded: bytes
    records, after = _records(data)
    events = (_event(record) for record in records if record.offset >= offset)
    return [event for event in events if event is not None], max(offset, after)


def _records(data: bytes) -> tuple[Sequence[Record], int]:
    """The records of all whole batches, and the offset after them. The last batch may be cut off."""
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
    """None for what is no event: the topic is an ordinary one, and anybody may write to it."""
    try:
        told = json.loads(record.value or b"")
        group_id, kind, generation, cause = told["group_id"], told["kind"], told["generation"], told.get("cause", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    texts = (group_id, kind, cause)
    if not all(isinstance(one, str) for one in texts) or not isinstance(generation, int):
        return None
    return HistoryEvent(record.offset, record.timestamp, group_id, kind, generation, cause, told)
