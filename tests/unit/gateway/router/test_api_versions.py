"""What clients learn about the versions of Kafka and of the gateway."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from holdfast.gateway.router.api_versions import client_software, highest_versions, merged, rejected_version
from holdfast.wire.apis.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from holdfast.wire.headers import decode_response, encode_request, encode_response_parts
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import LOCAL, FakeRequests, Peer, gateway

NEWER = 99
KAFKA = ApiVersionsResponse(
    api_keys=[ApiVersion(key, 0, NEWER) for key in (0, 1, 2, 3, 10, LOCAL, 17, 18, 36, 60)],
    supported_features=[SupportedFeatureKey("transaction.version", 0, 2)],
    finalized_features_epoch=7,
    finalized_features=[FinalizedFeatureKey("transaction.version", 2, 2)],
)


def encoded(message: Any, version: int) -> bytes:
    parts: list[Any] = encode_response_parts(message, version, 5)
    return b"".join(parts)


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


def merge(message: ApiVersionsResponse, version: int, *, is_transparent: bool) -> ApiVersionsResponse:
    highest = highest_versions(is_transparent=is_transparent)
    frame = merged(encoded(message, version)[4:], version, FakeRequests(), highest)
    correlation_id, response = decode_response(API_VERSIONS, version, frame[4:])
    assert (struct.unpack_from(">i", frame)[0], correlation_id) == (len(frame) - 4, 5)
    assert isinstance(response, ApiVersionsResponse)
    return response


@pytest.mark.parametrize("version", range(5))
def test_the_group_apis_are_the_gateways_and_those_it_reads_are_limited(version: int) -> None:
    found = ranges(merge(KAFKA, version, is_transparent=True))
    assert found[LOCAL] == (0, 4)
    assert (found[0], found[17], found[18], found[36]) == ((0, 13), (0, 1), (0, 4), (0, 2))
    assert found[1] == found[2] == found[3] == found[60] == (0, NEWER)


def test_responses_with_addresses_are_limited_to_versions_that_can_be_rewritten() -> None:
    found = ranges(merge(KAFKA, 3, is_transparent=False))
    assert (found[1], found[3], found[10], found[60]) == ((0, 15), (0, 13), (0, 6), (0, 2))
    assert found[2] == (0, NEWER)


def test_features_are_kafkas() -> None:
    found = merge(KAFKA, 3, is_transparent=False)
    assert found.supported_features == KAFKA.supported_features
    assert (found.finalized_features, found.finalized_features_epoch) == (KAFKA.finalized_features, 7)


def test_an_api_of_which_kafka_has_only_newer_versions_is_left_out() -> None:
    found = ranges(merge(ApiVersionsResponse(api_keys=[ApiVersion(3, NEWER, NEWER)]), 0, is_transparent=False))
    assert 3 not in found


@pytest.mark.parametrize("version", range(5))
def test_errors_pass_as_they_are(version: int) -> None:
    frame = encoded(ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)]), 0)
    assert merged(frame[4:], version, FakeRequests(), {}) == frame


def test_an_unknown_version_is_answered_in_version_0_with_ours() -> None:
    frame = encode_request(ApiVersionsRequest("a", "1"), 4, 9, "test")[4:]
    newer = frame[:2] + struct.pack(">h", NEWER) + frame[4:]
    correlation_id, found = decode_response(API_VERSIONS, 0, rejected_version(newer)[4:])
    assert (correlation_id, found.error_code, ranges(found)) == (9, 35, {18: (0, 4)})


def test_the_software_of_the_client_is_in_its_request() -> None:
    named = ApiVersionsRequest("librdkafka" * 100, "2.0")
    assert client_software(encode_request(named, 3, 1, "test")[4:]) == ("librdkafka" * 10)
    assert client_software(encode_request(named, 0, 1, "test")[4:]) is None
    assert client_software(encode_request(named, 3, 1, "test")[4:40]) is None


def test_a_client_gets_both_and_is_known_by_its_software(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        frame = await peer.frame()
        assert struct.unpack_from(">hhi", frame) == (18, 3, 5)
        await peer.send(encoded(KAFKA, 3))
        await peer.frame()

    async def main() -> None:
        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(encode_request(ApiVersionsRequest("aiokafka", "0.14"), 3, 5, "test"))
            found = decode_response(API_VERSIONS, 3, await client.frame())[1]
            assert ranges(found)[LOCAL] == (0, 4)
            await client.send(
                encode_request(ApiVersionsRequest("a", "1"), 4, 6, "t").replace(b"\0\x12\0\4", b"\0\x12\0\7")
            )
            rejected = decode_response(API_VERSIONS, 0, await client.frame())
            assert (rejected[0], rejected[1].error_code) == (6, 35)
            assert running.connection.session.client_software == "aiokafka"

    run(main())


@pytest.mark.parametrize("uses_sasl", [False, True])
def test_the_port_of_a_broker_that_is_down_still_has_versions(run: Run, uses_sasl: bool) -> None:
    """Its groups are served there. A client that has to authenticate cannot do that without the broker."""

    async def kafka(peer: Peer) -> None:
        await peer.frame()
        await peer.send(encoded(KAFKA, 3))

    async def main() -> None:
        async with gateway(kafka, upstream_uses_sasl=uses_sasl) as running:
            asked = encode_request(ApiVersionsRequest("a", "1"), 3, 5, "test")
            first = await running.connect()
            await first.send(asked)
            before = await first.frame()
            first.close()
            running.kafka.stop_listening()
            client = await running.connect()
            await client.send(asked)
            if uses_sasl:
                assert await client.ended() == b""
            else:
                assert await client.frame() == before

    run(main())
