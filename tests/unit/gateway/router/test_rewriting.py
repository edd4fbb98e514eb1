"""The gateway's addresses in Kafka's responses."""

from __future__ import annotations

import random
import struct
from copy import deepcopy
from typing import Any

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.errors import KafkaSetupError
from holdfast.gateway.router.frames import BrokenStream
from holdfast.gateway.router.rewriting import metadata_beginning, replace_addresses, with_gateway_addresses
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterBroker, DescribeClusterResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.apis.produce import (
    PRODUCE,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast.wire.headers import decode_response, encode_response_parts
from holdfast.wire.message import Api

NO_PORT = 60_000


class Brokers:
    is_transparent = False
    node_ids = (1, 2, 3)

    def upstream(self, node_id: int) -> Address:
        raise AssertionError

    def advertised(self, node_id: int) -> Address:
        if node_id == NO_PORT:
            raise KafkaSetupError("no such port")
        return Address("gateway.example", 9093 + node_id)

    def on_changed(self, action: object) -> None:
        raise AssertionError


BROKERS = Brokers()
VERSIONS = range(METADATA.versions[0], METADATA.versions[1] + 1)


def encoded(message: Any, version: int) -> bytes:
    parts: list[Any] = encode_response_parts(message, version, 77)
    return b"".join(parts)


def metadata(seed: int) -> MetadataResponse:
    rng = random.Random(seed)
    ids = rng.sample([*range(10), NO_PORT], rng.randrange(6))
    partitions = [MetadataResponsePartition(0, number, 1, 5, [1, 2], [1], []) for number in range(rng.randrange(4))]
    return MetadataResponse(
        throttle_time_ms=5,
        brokers=[
            MetadataResponseBroker(one, "h" * rng.choice((0, 5, 200)), 9092, rng.choice((None, "", "rack")))
            for one in ids
        ],
        cluster_id=rng.choice((None, "cluster")),
        controller_id=2,
        topics=[MetadataResponseTopic(0, "orders", bytes(16), False, partitions)],
    )


def replaced(message: MetadataResponse) -> MetadataResponse:
    expected = deepcopy(message)
    expected.brokers = [
        MetadataResponseBroker(one.node_id, *BROKERS.advertised(one.node_id), one.rack)
        for one in message.brokers
        if one.node_id != NO_PORT
    ]
    return expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_the_beginning_of_metadata_has_other_addresses_and_the_rest_is_the_same(version: int, seed: int) -> None:
    message = metadata(seed)
    whole = encoded(message, version)
    found = metadata_beginning(memoryview(whole)[4:], len(whole) - 4, version, BROKERS)
    assert found is not None
    assert found.data + whole[4 + found.taken :] == encoded(replaced(message), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_beginning_is_replaced_as_soon_as_it_has_arrived(version: int) -> None:
    whole = encoded(metadata(3), version)
    found = metadata_beginning(memoryview(whole)[4:], len(whole) - 4, version, BROKERS)
    assert found is not None
    for end in range(found.taken):
        assert metadata_beginning(memoryview(whole)[4 : 4 + end], len(whole) - 4, version, BROKERS) is None
    early = metadata_beginning(memoryview(whole)[4 : 4 + found.taken], len(whole) - 4, version, BROKERS)
    assert early == found


@pytest.mark.parametrize("body", [struct.pack(">i", -5), b"\xff\xff\xff\xff\xff\xff"])
def test_malformed_metadata_breaks_the_stream(body: bytes) -> None:
    version = 0 if body[1] == 255 and len(body) == 4 else 9
    with pytest.raises(BrokenStream, match="Metadata"):
        metadata_beginning(memoryview(struct.pack(">i", 77) + body), 1000, version, BROKERS)


def rewritten(api: Api, message: Any, version: int) -> Any:
    frame = encoded(message, version)[4:]
    changed = with_gateway_addresses(frame, api, version, BROKERS)
    assert struct.unpack_from(">i", changed) == (len(changed) - 4,)
    correlation_id, decoded = decode_response(api, version, changed[4:])
    assert correlation_id == 77
    return decoded


@pytest.mark.parametrize("version", range(4))
def test_one_coordinator_is_replaced(version: int) -> None:
    found = rewritten(FIND_COORDINATOR, FindCoordinatorResponse(node_id=2, host="kafka-2", port=9092), version)
    assert (found.node_id, found.host, found.port) == (2, "gateway.example", 9095)


@pytest.mark.parametrize("version", range(4, 7))
def test_each_of_several_coordinators_is_replaced_unless_it_is_an_error(version: int) -> None:
    asked = [
        FoundCoordinator("a", 1, "kafka-1", 9092, 0, None),
        FoundCoordinator("b", -1, "", -1, 15, "not available"),
        FoundCoordinator("c", NO_PORT, "kafka-x", 9092, 0, None),
    ]
    found = rewritten(FIND_COORDINATOR, FindCoordinatorResponse(coordinators=asked), version)
    assert [(one.host, one.port, one.error_code) for one in found.coordinators] == [
        ("gateway.example", 9094, 0),
        ("", -1, 15),
        ("", -1, 0),
    ]


@pytest.mark.parametrize("version", range(DESCRIBE_CLUSTER.versions[1] + 1))
def test_the_brokers_of_describe_cluster_are_replaced(version: int) -> None:
    brokers = [DescribeClusterBroker(3, "kafka-3", 9092, "rack"), DescribeClusterBroker(NO_PORT, "kafka-x", 9092)]
    found = rewritten(DESCRIBE_CLUSTER, DescribeClusterResponse(cluster_id="c", brokers=brokers), version)
    assert [(one.broker_id, one.host, one.port, one.rack) for one in found.brokers] == [
        (3, "gateway.example", 9096, "rack")
    ]


def test_controllers_keep_their_addresses() -> None:
    brokers = [DescribeClusterBroker(3, "kafka-3", 9092)]
    found = rewritten(DESCRIBE_CLUSTER, DescribeClusterResponse(endpoint_type=2, cluster_id="c", brokers=brokers), 2)
    assert found.brokers[0].host == "kafka-3"


@pytest.mark.parametrize("version", range(10, PRODUCE.versions[1] + 1))
def test_the_new_leaders_in_a_produce_response_are_replaced(version: int) -> None:
    partitions = [PartitionProduceResponse(0, 6, -1), PartitionProduceResponse(1, 0, 5)]
    response = ProduceResponse(
        [TopicProduceResponse("t", partition_responses=partitions)], 0, [NodeEndpoint(1, "k", 1)]
    )
    found = rewritten(PRODUCE, response, version)
    assert [(one.node_id, one.host, one.port) for one in found.node_endpoints] == [(1, "gateway.example", 9094)]
    assert found.responses[0].partition_responses[0].error_code == 6


@pytest.mark.parametrize("version", range(10, PRODUCE.versions[1] + 1))
@pytest.mark.parametrize("partitions", [0, 1, 3, 126, 127, 128, 500])
@pytest.mark.parametrize("topics", [0, 1, 2])
@pytest.mark.parametrize("message", [None, "", "refused"])
def test_a_produce_response_without_addresses_is_the_same(
    version: int, partitions: int, topics: int, message: str | None
) -> None:
    answered = [
        PartitionProduceResponse(one, 3 if message else 0, 7, error_message=message) for one in range(partitions)
    ]
    response = ProduceResponse([TopicProduceResponse("topic", bytes(16), answered)] * topics, 7)
    frame = encoded(response, version)
    assert with_gateway_addresses(frame[4:], PRODUCE, version, BROKERS) == frame


def test_decoded_metadata_is_replaced_too() -> None:
    message = metadata(3)
    expected = replaced(message)
    assert replace_addresses(message, BROKERS)
    assert message == expected
    assert not replace_addresses(object(), BROKERS)
