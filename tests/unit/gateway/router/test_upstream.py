"""Kafka's responses in rewriting mode: changed where they have addresses, streamed where they are large."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.gateway.router.upstream import MAX_COLLECTED_BYTES
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterBroker, DescribeClusterResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.apis.produce import PRODUCE, NodeEndpoint, ProduceResponse
from holdfast.wire.headers import decode_response, encode_response_parts
from holdfast.wire.message import Api
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import FORWARDED, HOST, LOCAL, Peer, gateway, request, response

REAL = ("kafka.example", 9092)


def encoded(message: Any, version: int, correlation_id: int) -> bytes:
    parts: list[Any] = encode_response_parts(message, version, correlation_id)
    return b"".join(parts)


def metadata(topics: int = 0) -> MetadataResponse:
    partitions = [MetadataResponsePartition(0, number, 1, 5, [1], [1], []) for number in range(10)]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, *REAL), MetadataResponseBroker(2, *REAL)],
        topics=[MetadataResponseTopic(0, f"topic-{number}", bytes(16), False, partitions) for number in range(topics)],
    )


ANSWERS: dict[int, Callable[[], Any]] = {
    METADATA.key: metadata,
    FIND_COORDINATOR.key: lambda: FindCoordinatorResponse(node_id=2, host=REAL[0], port=REAL[1]),
    DESCRIBE_CLUSTER.key: lambda: DescribeClusterResponse(
        cluster_id="c", brokers=[DescribeClusterBroker(1, *REAL), DescribeClusterBroker(2, *REAL)]
    ),
    PRODUCE.key: lambda: ProduceResponse(node_endpoints=[NodeEndpoint(1, *REAL)]),
}


async def answer_by_key(peer: Peer) -> None:
    while True:
        frame = await peer.frame()
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        make = ANSWERS.get(key)
        await peer.send(encoded(make(), version, correlation_id) if make else response(correlation_id, b"kafka"))


def addresses(api: Api, version: int, frame: bytes) -> set[tuple[str, int]]:
    found = decode_response(api, version, frame)[1]
    if api is FIND_COORDINATOR:
        return {(found.host, found.port)}
    return {(one.host, one.port) for one in (found.node_endpoints if api is PRODUCE else found.brokers)}


def body(api: Api, version: int) -> bytes:
    """The rest of a request whose header has no tags: enough for the router, and nobody else reads it."""
    return b"\0\0\0\1" if api is PRODUCE and version >= api.flexible else b""


@pytest.mark.parametrize(
    ("api", "version"),
    [
        *((METADATA, version) for version in range(14)),
        *((FIND_COORDINATOR, version) for version in (0, 1, 2, 3)),
        *((DESCRIBE_CLUSTER, version) for version in (0, 1, 2)),
        *((PRODUCE, version) for version in (10, 11, 12, 13)),
    ],
)
@pytest.mark.parametrize("is_transparent", [True, False])
def test_clients_get_the_gateways_addresses_where_kafka_does_not_send_them(
    run: Run, api: Api, version: int, is_transparent: bool
) -> None:
    async def main() -> None:
        async with gateway(answer_by_key, is_transparent=is_transparent) as running:
            client = await running.connect()
            asked = request(api.key, 1, body(api, version), version)
            await client.send(request(FORWARDED, 0), asked, asked, request(LOCAL, 2), request(FORWARDED, 3))
            assert await client.reply() == (0, b"kafka")
            for _ in range(2):
                found = addresses(api, version, await client.frame())
                assert (
                    found == {REAL}
                    if is_transparent
                    else found <= {(HOST, running.brokers.base + 2 + n) for n in (0, 1)}
                )
                assert found
            assert await client.reply() == (2, b"local")
            assert await client.reply() == (3, b"kafka")

    run(main())


@pytest.mark.parametrize("version", [0, 8, 9, 13])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_metadata_in_pieces_is_the_same(run: Run, version: int, size: int) -> None:
    whole = encoded(metadata(topics=20), version, 1)

    async def kafka(peer: Peer) -> None:
        await peer.frame()
        for start in range(0, len(whole), size):
            await peer.send(whole[start : start + size])
            if start < 3000:
                await asyncio.sleep(0)
        await peer.frame()

    async def main() -> None:
        async with gateway(kafka, is_transparent=False) as running:
            client = await running.connect()
            await client.send(request(METADATA.key, 1, version=version))
            _, found = decode_response(METADATA, version, await client.frame())
            expected = decode_response(METADATA, version, whole[4:])[1]
            for one in expected.brokers:
                one.host, one.port = running.brokers.advertised(one.node_id)
            assert found == expected

    run(main())


def test_a_large_metadata_response_is_not_collected(run: Run) -> None:
    async def main() -> None:
        whole = encoded(metadata(topics=3000), 9, 1)
        halves = asyncio.Event()

        async def kafka(peer: Peer) -> None:
            await peer.frame()
            await peer.send(whole[: len(whole) // 2])
            await halves.wait()
            await peer.send(whole[len(whole) // 2 :])
            await peer.frame()

        async with gateway(kafka, is_transparent=False) as running:
            client = await running.connect()
            await client.send(request(METADATA.key, 1, version=9))
            await asyncio.wait_for(client.reader.readexactly(len(whole) // 4), 10)
            halves.set()
            running.kafka.failures.clear()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">iii", MAX_COLLECTED_BYTES + 1, 1, -1),
        struct.pack(">ii", 20, 1) + b"\xff" * 16,
        struct.pack(">ii", 4, 1),
    ],
)
@pytest.mark.parametrize("api", [DESCRIBE_CLUSTER, METADATA])
def test_a_response_that_cannot_be_rewritten_ends_the_connection(run: Run, api: Api, answer: bytes) -> None:
    async def kafka(peer: Peer) -> None:
        await peer.frame()
        await peer.send(answer)
        await peer.frame()

    async def main() -> None:
        async with gateway(kafka, is_transparent=False) as running:
            client = await running.connect()
            await client.send(request(api.key, 1, version=0))
            assert await client.ended() == b""
            await running.empty()

    run(main())
