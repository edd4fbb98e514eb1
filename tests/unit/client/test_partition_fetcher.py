"""Fetching batches as bytes: whom to ask, what is in flight, and what becomes of it when a broker fails."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import UnsupportedVersion
from holdfast.client.partition_fetcher import FetchedPartition, FetchSettings, PartitionFetcher
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.fetch import (
    FETCH,
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from holdfast.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import Peer, Request, ScriptedServer, unused_address

TOPIC = "t"
PATIENCE_S = 20.0
Leaders = dict[int, tuple[int, int]]
"""The leader and its epoch, by partition."""
Answer = Callable[[int, int], FetchablePartitionResponse]
"""To a fetch of this partition from this offset on."""


def records(partition: int, offset: int) -> FetchablePartitionResponse:
    return FetchablePartitionResponse(partition, 0, 100, 90, records=b"%d from %d" % (partition, offset))


class Cluster:
    """Brokers of one topic, whose leaders and answers a test may change at any time."""

    def __init__(self, brokers: int, leaders: Leaders) -> None:
        self.leaders = leaders
        self.answers: dict[int, Answer] = dict.fromkeys(range(1, brokers + 1), records)
        self.fetches: list[tuple[int, Request]] = []
        """The broker and the request."""
        self.metadata_requests = 0
        self.waits = threading.Event()
        """While it is not set, no fetch is answered."""
        self.waits.set()
        self._stack = contextlib.ExitStack()
        self.servers = {number: self._stack.enter_context(self._server(number)) for number in self.answers}
        settings = NetworkSettings((self.servers[1].address,), reconnect_backoff_s=0.01, reconnect_backoff_max_s=0.01)
        self.client = self._stack.enter_context(ClusterClient(settings, runtime=SYSTEM))

    def close(self) -> None:
        self.waits.set()
        self._stack.close()

    def _server(self, number: int) -> ScriptedServer:
        def script(peer: Peer) -> None:
            peer.answer_api_versions()
            while True:
                request = peer.request()
                if request.api is FETCH:
                    self.fetches.append((number, request))
                    assert self.waits.wait(PATIENCE_S)
                    peer.answer(request, self._answer(number, request))
                else:
                    self.metadata_requests += 1
                    peer.answer(request, self._metadata())

        return ScriptedServer(script)

    def _answer(self, number: int, request: Request) -> FetchResponse:
        asked = [(one.topic, partition) for one in request.message.topics for partition in one.partitions]
        return FetchResponse(
            responses=[
                FetchableTopicResponse(topic, partitions=[self.answers[number](one.partition, one.fetch_offset)])
                for topic, one in asked
            ]
        )

    def _metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(number, *server.address) for number, server in self.servers.items()],
            topics=[
                MetadataResponseTopic(
                    0,
                    TOPIC,
                    partitions=[
                        MetadataResponsePartition(0, partition, leader, epoch, [leader], [leader])
                        for partition, (leader, epoch) in self.leaders.items()
                    ],
                )
            ],
        )


@contextlib.contextmanager
def cluster(brokers: int, leaders: Leaders, **settings: Any) -> Iterator[tuple[Cluster, PartitionFetcher]]:
    made = Cluster(brokers, leaders)
    try:
        yield made, PartitionFetcher(made.client, FetchSettings(**settings))
    finally:
        made.close()


def ask(fetcher: PartitionFetcher, positions: dict[int, int]) -> None:
    wanted = {(TOPIC, partition): offset for partition, offset in positions.items()}
    fetcher.request(wanted, time.monotonic() + PATIENCE_S)


def receive(fetcher: PartitionFetcher, wanted: int = 1) -> dict[int, FetchedPartition]:
    found: dict[int, FetchedPartition] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < wanted and time.monotonic() < deadline:
        found |= {one.where[1]: one for one in fetcher.receive(deadline)}
    return found


def test_the_partitions_of_a_leader_are_fetched_in_one_request() -> None:
    with cluster(2, {0: (1, 5), 1: (2, 6), 2: (1, 7)}, partition_max_bytes=1000, max_bytes=5000) as (brokers, fetcher):
        ask(fetcher, {0: 10, 1: 20, 2: 30})
        found = receive(fetcher, 3)

    assert {number: bytes(one.records) for number, one in found.items()} == {
        0: b"0 from 10",
        1: b"1 from 20",
        2: b"2 from 30",
    }
    assert {(one.error, one.high_watermark, one.last_stable_offset) for one in found.values()} == {(0, 100, 90)}
    asked = dict(brokers.fetches)
    assert len(brokers.fetches) == 2
    assert [
        (one.partition, one.fetch_offset, one.current_leader_epoch, one.partition_max_bytes)
        for one in asked[1].message.topics[0].partitions
    ] == [(0, 10, 5, 1000), (2, 30, 7, 1000)]
    assert (asked[1].version, asked[1].message.isolation_level, asked[1].message.max_bytes) == (12, 1, 5000)


def test_uncommitted_records_are_asked_for_if_wanted() -> None:
    with cluster(1, {0: (1, 0)}, read_committed=False) as (brokers, fetcher):
        ask(fetcher, {0: 0})
        receive(fetcher)
    assert brokers.fetches[0][1].message.isolation_level == 0


def test_what_is_asked_for_is_not_asked_for_again() -> None:
    with cluster(1, {0: (1, 0), 1: (1, 0)}) as (brokers, fetcher):
        ask(fetcher, {0: 0, 1: 0})
        receive(fetcher, 2)
        brokers.waits.clear()
        ask(fetcher, {0: 5})
        ask(fetcher, {0: 5, 1: 5})  # the broker still owes an answer
        assert fetcher.receive(time.monotonic() + 0.05) == []
        brokers.waits.set()
        first = receive(fetcher)
        ask(fetcher, {0: 7, 1: 5})
        second = receive(fetcher, 2)

    assert {number: one.offset for number, one in first.items()} == {0: 5}
    assert {number: one.offset for number, one in second.items()} == {0: 7, 1: 5}
    assert len(brokers.fetches) == 3
    assert brokers.metadata_requests == 1  # the leaders are known


def test_a_partition_that_moved_is_fetched_from_its_new_leader() -> None:
    with cluster(2, {0: (1, 0)}) as (brokers, fetcher):
        brokers.answers[1] = lambda partition, offset: FetchablePartitionResponse(
            partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        )
        brokers.leaders = {0: (1, 0)}
        ask(fetcher, {0: 3})
        refused = receive(fetcher)[0]
        brokers.leaders = {0: (2, 1)}
        ask(fetcher, {0: 3})
        found = receive(fetcher)[0]

    assert (refused.error, refused.reason, refused.offset) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "NOT_LEADER_OR_FOLLOWER",
        3,
    )
    assert bytes(found.records) == b"0 from 3"
    assert [broker for broker, _ in brokers.fetches] == [1, 2]
    assert brokers.fetches[1][1].message.topics[0].partitions[0].current_leader_epoch == 1


def test_aborted_transactions_are_handed_on() -> None:
    with cluster(1, {0: (1, 0)}) as (brokers, fetcher):
        brokers.answers[1] = lambda partition, offset: FetchablePartitionResponse(
            partition, 0, 9, 9, aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=3)], records=b"x"
        )
        ask(fetcher, {0: 3})
        (found,) = receive(fetcher).values()
    assert [(one.producer_id, one.first_offset) for one in found.aborted] == [(7, 3)]


def test_what_does_not_exist_and_what_has_no_leader_is_an_answer() -> None:
    with cluster(1, {0: (-1, 0)}) as (brokers, fetcher):
        fetcher.request({(TOPIC, 0): 1, (TOPIC, 1): 1, ("other", 0): 1}, time.monotonic() + PATIENCE_S)
        found = {one.where: one.error for one in fetcher.receive(time.monotonic() + PATIENCE_S)}

    assert found == {
        (TOPIC, 0): ErrorCode.LEADER_NOT_AVAILABLE,
        (TOPIC, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("other", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert brokers.fetches == []


def test_a_broken_connection_is_an_answer_and_the_next_request_makes_another() -> None:
    with cluster(1, {0: (1, 0)}) as (brokers, fetcher):

        def break_off(partition: int, offset: int) -> FetchablePartitionResponse:
            brokers.answers[1] = records
            raise ConnectionError

        brokers.answers[1] = break_off
        ask(fetcher, {0: 3})
        broken = receive(fetcher)[0]
        ask(fetcher, {0: 3})
        found = receive(fetcher)[0]

    assert broken.error is ErrorCode.NETWORK_EXCEPTION
    assert "closed by the broker before it answered Fetch" in broken.reason
    assert bytes(found.records) == b"0 from 3"


def test_an_unreachable_leader_does_not_keep_the_others_back() -> None:
    with cluster(2, {0: (1, 0), 1: (2, 0)}) as (brokers, fetcher):
        nobody = unused_address()
        brokers.servers[2].address = nobody
        fetcher.request({(TOPIC, 0): 1, (TOPIC, 1): 1}, time.monotonic() + 0.5)
        found = receive(fetcher, 2)

    assert bytes(found[0].records) == b"0 from 1"
    assert found[1].error is ErrorCode.NETWORK_EXCEPTION
    assert str(nobody.port) in found[1].reason


def test_a_fetch_without_an_answer_times_out() -> None:
    with cluster(1, {0: (1, 0)}, max_wait_ms=0) as (brokers, fetcher):
        brokers.client.settings = NetworkSettings((brokers.servers[1].address,), request_timeout_s=0.2)
        brokers.waits.clear()
        ask(fetcher, {0: 3})
        (silent,) = receive(fetcher).values()
        brokers.waits.set()
        ask(fetcher, {0: 3})
        (found,) = receive(fetcher).values()

    assert (silent.error, "no answer to Fetch in time" in silent.reason) == (ErrorCode.NETWORK_EXCEPTION, True)
    assert bytes(found.records) == b"0 from 3"


def test_after_a_reset_no_answer_is_left_over() -> None:
    with cluster(1, {0: (1, 0)}) as (brokers, fetcher):
        brokers.waits.clear()
        ask(fetcher, {0: 3})
        eventually(lambda: brokers.fetches, "the request arrives")
        fetcher.reset()
        brokers.waits.set()
        ask(fetcher, {0: 8})
        (found,) = receive(fetcher).values()

    assert found.offset == 8
    assert bytes(found.records) == b"0 from 8"


def test_a_broker_without_batches_of_this_format_is_refused() -> None:
    def old(peer: Peer) -> None:
        peer.answer_api_versions({FETCH.key: (0, 3)})
        request = peer.request()
        partition = MetadataResponsePartition(0, 0, 1, 0, [1], [1])
        peer.answer(
            request,
            MetadataResponse(
                brokers=[MetadataResponseBroker(1, *peer.socket.getsockname())],
                topics=[MetadataResponseTopic(0, TOPIC, partitions=[partition])],
            ),
        )
        peer.expect_end()

    with ScriptedServer(old) as server, ClusterClient(NetworkSettings((server.address,)), runtime=SYSTEM) as client:
        fetcher = PartitionFetcher(client, FetchSettings())
        with pytest.raises(UnsupportedVersion, match="Fetch is needed in a version from 4 to 12"):
            ask(fetcher, {0: 0})
