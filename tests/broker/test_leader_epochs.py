"""Leader epochs on the wire (KIP-320): who knows our only epoch is served, who knows another looks again."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from holdfast.wire.apis.fetch import FetchPartition, FetchTopic
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopic,
)
from tests.broker.wire_client import WireClient, batch, fetch_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import server

__all__ = ["server"]

UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 3, 74, 75
CURRENT, LATER, EARLIER, NOT_SAID = 0, 1, -2, -1


@pytest.fixture
def topic(server: HoldfastBroker | ApacheKafka) -> str:
    """With three records."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    with WireClient(server.address) as client:
        client.create_topic(name)
        # A Kafka that has just made a topic may not lead it yet.
        eventually(lambda: client.produce(name, batch(b"a", b"b", b"c")).error_code == 0, "the topic takes records")
    return name


@pytest.mark.parametrize(
    ("epoch", "knows", "answer"),
    [
        (CURRENT, CURRENT, (0, 0, 0, 3)),
        (CURRENT, NOT_SAID, (0, 0, 0, 3)),
        (LATER, CURRENT, (0, 0, -1, -1)),
        (CURRENT, LATER, (UNKNOWN_LEADER_EPOCH, 0, -1, -1)),
        (CURRENT, EARLIER, (FENCED_LEADER_EPOCH, 0, -1, -1)),
    ],
)
def test_where_an_epoch_ended(
    server: HoldfastBroker | ApacheKafka, topic: str, epoch: int, knows: int, answer: tuple[int, int, int, int]
) -> None:
    asked = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, knows, epoch)]),
            OffsetForLeaderTopic("nowhere", [OffsetForLeaderPartition(0, knows, epoch)]),
        ]
    )
    with WireClient(server.address) as client:
        found = {one.topic: one.partitions for one in client.ask(asked, 4).topics}

    assert found == {
        topic: [OffsetForLeaderPartitionResult(*answer)],
        "nowhere": [OffsetForLeaderPartitionResult(UNKNOWN_TOPIC_OR_PARTITION, 0)],
    }


@pytest.mark.parametrize(
    ("knows", "fetching", "listing"),
    [
        (CURRENT, 0, 0),
        (NOT_SAID, 0, 0),
        (LATER, UNKNOWN_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH),
        # In a fetch every negative epoch is none at all.
        (EARLIER, 0, FENCED_LEADER_EPOCH),
    ],
)
def test_fetch_and_list_offsets_check_the_leader_epoch(
    server: HoldfastBroker | ApacheKafka, topic: str, knows: int, fetching: int, listing: int
) -> None:
    wanted = FetchPartition(0, knows, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = dataclasses.replace(fetch_request(topic), topics=[FetchTopic(topic, partitions=[wanted])])
    end = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, knows, -1)])])
    with WireClient(server.address) as client:
        ((fetched,),) = (one.partitions for one in client.ask(fetch, 12).responses)
        ((listed,),) = (one.partitions for one in client.ask(end, 7).topics)

    assert (fetched.error_code, listed.error_code) == (fetching, listing)
    assert (fetched.high_watermark, listed.offset) == (-1 if fetching else 3, -1 if listing else 3)
