"""The ledger as the client reads it: events out of whatever is in the topic, and a group's latest rebalance."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.client import history
from holdfast.client.admin import Admin
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConnectionFailed, TopicError
from holdfast.client.history import EventLog, HistoryEvent, last_rebalances
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind, GroupEvent
from holdfast.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchResponse
from holdfast.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.batch import HEADER_SIZE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.unit.client.scripted import Peer, ScriptedServer

STARTED, FORMED, ASSIGNED, EMPTY = (
    EventKind.REBALANCE_STARTED,
    EventKind.GENERATION_FORMED,
    EventKind.ASSIGNED,
    EventKind.BECAME_EMPTY,
)


JOINED, LEFT = Cause(CauseCode.MEMBER_JOINED), Cause(CauseCode.MEMBER_LEFT)


def ledger_event(kind: EventKind, generation: int, group: str = "g", cause: Cause = JOINED, **details: Any) -> bytes:
    epoch = generation * 1_000_000
    event = GroupEvent(kind=kind, group_id=group, at_ms=1, generation=generation, epoch=epoch, cause=cause, **details)
    return event.to_json()


def answer(*values: bytes | None, first: int = 0, cut: int = 0) -> FetchablePartitionResponse:
    records = [Record(number, 1_000 + number, b"g", value) for number, value in enumerate(values)]
    data = bytearray(encode_batch(records))
    data[:8] = first.to_bytes(8)
    return FetchablePartitionResponse(0, 0, 0, records=bytes(data[: len(data) - cut]))


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_have_the_brokers_time_and_all_their_fields() -> None:
    value = ledger_event(STARTED, 3, cause=JOINED, member_id="m-1", instance_id="i-1", reason="because")
    (event,), after = history._read(answer(value, first=40), 40)
    assert (event.offset, event.at_ms, event.group_id, event.kind) == (40, 1_000, "g", "rebalance started")
    assert (event.generation, event.member, event.fields["reason"]) == (3, "i-1", "because")
    assert (event.cause, event.cause_code) == ("a new member joined", CauseCode.MEMBER_JOINED)
    assert after == 41


def test_a_member_without_an_instance_id_is_named_by_its_member_id() -> None:
    events, _ = history._read(answer(ledger_event(STARTED, 1, member_id="m-1"), ledger_event(EMPTY, 2)), 0)
    assert [event.member for event in events] == ["m-1", None]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        b"",
        b"hello",
        b"[]",
        b"1",
        b"{}",
        b'{"group_id":1,"kind":"x","generation":1}',
        b'{"group_id":"g","kind":"x","generation":"1"}',
        b'{"group_id":"g","kind":"x","generation":1,"cause":[]}',
        b"\xff",
    ],
)
def test_what_is_no_event_is_passed_over(nonsense: bytes | None) -> None:
    events, after = history._read(answer(ledger_event(EMPTY, 1), nonsense, ledger_event(EMPTY, 2)), 0)
    assert [event.generation for event in events] == [1, 2]
    assert after == 3


def test_an_event_of_a_newer_server_is_read_as_far_as_it_is_known() -> None:
    value = json.dumps({"kind": "standby added", "group_id": "g", "generation": 1, "standbys": 4}).encode()
    (event,), _ = history._read(answer(value), 0)
    assert (event.kind, event.cause, event.fields["standbys"]) == ("standby added", "", 4)
    assert event.cause_code is None


def test_events_before_the_requested_offset_are_not_returned_again() -> None:
    events, after = history._read(answer(ledger_event(EMPTY, 1), ledger_event(EMPTY, 2), ledger_event(EMPTY, 3)), 2)
    assert ([event.offset for event in events], after) == ([2], 3)


def test_a_batch_that_is_cut_off_is_left_for_the_next_time() -> None:
    assert history._read(answer(ledger_event(EMPTY, 1), first=5, cut=1), 5) == ([], 5)
    assert history._read(answer(ledger_event(EMPTY, 1), first=5, cut=200), 5) == ([], 5)
    assert history._read(FetchablePartitionResponse(0, 0, 0, records=None), 5) == ([], 5)


def test_a_batch_that_cannot_be_read_is_an_error() -> None:
    good = answer(ledger_event(EMPTY, 1))
    assert isinstance(good.records, bytes)
    spoilt = bytearray(good.records)
    spoilt[HEADER_SIZE + 2] ^= 0xFF
    with pytest.raises(TopicError, match="cannot be read"):
        history._read(FetchablePartitionResponse(0, 0, 0, records=bytes(spoilt)), 0)


# -- the latest rebalance ----------------------------------------------------------------------------------------------


class FakeLedger(EventLog):
    """Events from a list; what was read of them is noted."""

    def __init__(self, values: list[bytes], first: int = 0) -> None:
        super().__init__(
            ClusterClient(NetworkSettings.from_config({"bootstrap.servers": "127.0.0.1:1"}), runtime=SYSTEM)
        )
        self._first = first
        self._events, _ = history._read(answer(*values, first=first), 0)
        self.read_from: list[int] = []

    def bounds(self, deadline: float) -> tuple[int, int] | None:
        return self._first, self._first + len(self._events)

    def events(self, first: int, end: int, deadline: float) -> Iterator[HistoryEvent]:
        self.read_from.append(first)
        return (event for event in self._events if first <= event.offset < end)


def test_the_latest_rebalance_has_its_cause_and_what_it_cost() -> None:
    ledger = FakeLedger(
        [
            ledger_event(STARTED, 0, cause=JOINED, member_id="m-1"),
            ledger_event(ASSIGNED, 1, unassigned_ms=10),
            ledger_event(STARTED, 1, cause=LEFT, instance_id="i-2", reason="bye"),
            ledger_event(FORMED, 2),
            ledger_event(ASSIGNED, 2, unassigned_ms=77),
            ledger_event(EventKind.STATIC_REJOINED, 2),
        ]
    )
    found = last_rebalances(ledger, ["g", "other"], 0)
    assert list(found) == ["g"]
    last = found["g"]
    assert (last.generation, last.at_ms, last.cause_code, last.member) == (2, 1_002, CauseCode.MEMBER_LEFT, "i-2")
    assert last.cause == LEFT.sentence
    assert (last.reason, last.unassigned_ms) == ("bye", 77)


def test_a_rebalance_that_lasts_has_cost_nothing_yet() -> None:
    ledger = FakeLedger([ledger_event(ASSIGNED, 1, unassigned_ms=10), ledger_event(STARTED, 1, cause=LEFT)])
    last = last_rebalances(ledger, ["g"], 0)["g"]
    assert (last.generation, last.cause_code, last.unassigned_ms) == (1, CauseCode.MEMBER_LEFT, None)


def test_a_deleted_group_of_the_same_name_is_another_one() -> None:
    ledger = FakeLedger(
        [ledger_event(STARTED, 1, cause=LEFT), ledger_event(EventKind.DELETED, 2), ledger_event(EventKind.FENCED, 3)]
    )
    last = last_rebalances(ledger, ["g"], 0)["g"]
    assert (last.generation, last.at_ms, last.cause, last.cause_code) == (3, None, None, None)


def test_the_ledger_is_read_from_its_end_and_no_further_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_EVENTS_PER_READ", 2)
    values = [
        ledger_event(STARTED, 1, "old"),
        ledger_event(EMPTY, 1, "x"),
        ledger_event(STARTED, 2),
        ledger_event(ASSIGNED, 3),
        ledger_event(EMPTY, 4, "x"),
    ]
    ledger = FakeLedger(values, first=100)
    assert last_rebalances(ledger, ["g"], 0)["g"].generation == 3
    assert ledger.read_from == [103, 101]
    assert last_rebalances(ledger, ["g", "old"], 0)["old"].at_ms == 1_000
    assert ledger.read_from == [103, 101, 103, 101, 100]


def test_the_search_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_EVENTS_PER_READ", 2)
    monkeypatch.setattr(history, "MAX_EVENTS_SCANNED", 3)
    ledger = FakeLedger([ledger_event(STARTED, 1), *(ledger_event(EMPTY, number, "x") for number in range(4))])
    assert last_rebalances(ledger, ["g"], 0) == {}
    assert ledger.read_from == [3, 2]


def test_without_a_ledger_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = FakeLedger([ledger_event(STARTED, 1)])
    monkeypatch.setattr(ledger, "bounds", lambda deadline: None)
    assert last_rebalances(ledger, ["g"], 0) == {}


# -- reading on --------------------------------------------------------------------------------------------------------


class LedgerBroker:
    """A broker with a ledger from offset 5 to 7, which refuses the offsets that are gone."""

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __call__(self, peer: Peer) -> None:
        host, port = peer.socket.getsockname()
        peer.answer_api_versions()
        partition = MetadataResponsePartition(0, 0, 1, 0, [1], [1])
        metadata = MetadataResponse(
            brokers=[MetadataResponseBroker(1, host, port)],
            topics=[MetadataResponseTopic(0, LEDGER_TOPIC, partitions=[partition])],
        )
        while True:
            request = peer.request()
            if request.api.name == "Metadata":
                peer.answer(request, metadata)
            elif request.api.name == "ListOffsets":
                asked = request.message.topics[0].partitions[0].timestamp
                found = ListOffsetsPartitionResponse(0, 0, offset=5 if asked == -2 else 7)
                peer.answer(request, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(LEDGER_TOPIC, [found])]))
            else:
                peer.answer(request, self._records(request.message.topics[0].partitions[0].fetch_offset))

    def _records(self, offset: int) -> FetchResponse:
        self.fetched.append(offset)
        if not 5 <= offset <= 7:
            found = FetchablePartitionResponse(0, ErrorCode.OFFSET_OUT_OF_RANGE, 7, records=b"")
        elif offset == 7:
            found = FetchablePartitionResponse(0, 0, 7, records=b"")
        else:
            found = answer(ledger_event(EMPTY, 1), ledger_event(EMPTY, 2), first=5)
        return FetchResponse(responses=[FetchableTopicResponse(LEDGER_TOPIC, partitions=[found])])


@pytest.mark.parametrize(
    ("offset", "expected", "after", "fetched"),
    [(5, [5, 6], 7, [5]), (6, [6], 7, [6]), (0, [5, 6], 7, [0, 5]), (900, [], 7, [900, 7])],
)
def test_events_that_are_gone_are_passed_over(offset: int, expected: list[int], after: int, fetched: list[int]) -> None:
    broker = LedgerBroker()
    with ScriptedServer(broker) as server:
        bootstrap = f"{server.address.host}:{server.address.port}"
        with ClusterClient(NetworkSettings.from_config({"bootstrap.servers": bootstrap}), runtime=SYSTEM) as network:
            events, found_after = EventLog(network).read(offset, 0, time.monotonic() + 20)
    assert ([event.offset for event in events], found_after, broker.fetched) == (expected, after, fetched)


def settings_of(server: ScriptedServer) -> dict[str, str]:
    return {"bootstrap.servers": f"{server.address.host}:{server.address.port}"}


def test_a_ledger_that_this_user_may_not_see_is_not_taken_for_none() -> None:
    def refusing(peer: Peer) -> None:
        host, port = peer.socket.getsockname()
        peer.answer_api_versions()
        refused = MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, LEDGER_TOPIC)
        while True:
            peer.answer(
                peer.request(), MetadataResponse(brokers=[MetadataResponseBroker(1, host, port)], topics=[refused])
            )

    with ScriptedServer(refusing) as server, Admin(settings_of(server)) as admin:
        for ask in (admin.history, admin.follow_history):
            with pytest.raises(TopicError, match=f"it needs READ on the topic {LEDGER_TOPIC}") as caught:
                ask()
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert admin.last_rebalances(["g"]) == {}, "the rest of its description is there all the same"


def test_a_ledger_that_cannot_be_reached_any_more_is_an_error_in_time() -> None:
    def one_answer(peer: Peer) -> None:
        peer.answer_api_versions()

    with ScriptedServer(one_answer) as server:
        bootstrap = f"{server.address.host}:{server.address.port}"
        settings = NetworkSettings.from_config({"bootstrap.servers": bootstrap})
        with ClusterClient(settings, runtime=SYSTEM) as network, pytest.raises(ConnectionFailed):
            EventLog(network).read(0, 0, time.monotonic() + 0.5)
