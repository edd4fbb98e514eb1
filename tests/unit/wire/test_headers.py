"""Headers and frames: byte by byte, beside kio's, and when they are damaged."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader

from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchResponse
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.headers import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response_parts,
    response_header,
)
from holdfast.wire.message import decode, encode
from tests.support.wire_messages import CASES, KAFKAS, case_id, random_message

REQUESTS = [(cls, version) for cls, version in CASES if cls is cls.API.request]
RESPONSES = [(cls, version) for cls, version in CASES if cls is cls.API.response]
OLDEST_IN_KIO = {8: 2, 9: 1}


# -- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_that_is_not_flexible_byte_by_byte() -> None:
    frame = encode_request(HeartbeatRequest("g", 5, "m"), 0, correlation_id=258, client_id="me")

    assert frame == bytes.fromhex("00000016 000c 0000 00000102 0002 6d65 0001 67 00000005 0001 6d")
    assert decode_request_header(frame[4:]) == (12, 0, 258, "me", 12)


def test_a_flexible_request_byte_by_byte() -> None:
    frame = encode_request(HeartbeatRequest("g", 5, "m"), 4, correlation_id=-1, client_id="me")

    assert frame == bytes.fromhex("00000017 000c 0004 ffffffff 0002 6d65 00 02 67 00000005 02 6d 00 00")
    assert decode_request_header(frame[4:]) == (12, 4, -1, "me", 13)


@pytest.mark.parametrize(("version", "position"), [(0, 10), (4, 11)])
def test_the_client_id_may_be_null(version: int, position: int) -> None:
    frame = encode_request(HeartbeatRequest(), version, 1, None)

    assert decode_request_header(frame[4:]) == (12, version, 1, None, position)


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=case_id)
def test_every_request_is_found_behind_its_header(cls: Any, version: int) -> None:
    request = random_message(cls, version, random.Random(3))

    frame = encode_request(request, version, 77, "clïent")

    size, body = int.from_bytes(frame[:4], "big"), frame[4:]
    key, its_version, correlation_id, client_id, position = decode_request_header(body)
    assert (size, key, its_version, correlation_id, client_id) == (len(body), cls.API.key, version, 77, "clïent")
    assert decode(cls, version, body, position) == request
    if (cls, version) in KAFKAS and version >= OLDEST_IN_KIO.get(key, 0):
        header, read = entity_reader(load_request_schema(key, version).__header_schema__)(body, 0)
        assert (read, header.request_api_key, header.correlation_id) == (position, key, 77)


def test_tags_in_a_request_header_are_skipped() -> None:
    header = bytes.fromhex("000c 0004 00000001 0001 78 02 00 01 ff 904e 02 ffff")

    assert decode_request_header(header + b"body") == (12, 4, 1, "x", len(header))


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_will_do(buffer_type: Any) -> None:
    frame = encode_request(HeartbeatRequest(), 4, 1, "me")

    assert decode_request_header(buffer_type(frame[4:])) == (12, 4, 1, "me", 13)


def test_versions_that_we_do_not_know_keep_the_headers_layout() -> None:
    newer_api_versions = bytes.fromhex("0012 0063 00000007 0001 78 00 abcdef")
    older_produce = bytes.fromhex("0000 0000 00000007 0001 78 abcdef")

    assert decode_request_header(newer_api_versions) == (18, 99, 7, "x", 12)
    assert decode_request_header(older_produce) == (0, 0, 7, "x", 11)


def test_of_an_unknown_api_the_header_ends_after_the_client_id() -> None:
    assert decode_request_header(bytes.fromhex("7530 0003 00000007 0001 78 00 ab")) == (30000, 3, 7, "x", 11)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "000c0004000000010001",  # the client id is missing
        "000c0000000000010002 78",
        "000c0000000000017fff 78",
        "000c000000000001fffe 78",  # negative, but not null
        "000c0000000000010001 ff",  # not UTF-8
        "000c0004000000010001 78",  # the tags are missing
        "000c0004000000010001 78 01 00 05 00",  # a tag past the end
        "000c0004000000010001 78 ffffffff0f",
        "000c0004000000010001 78 ffffffffffff",
    ],
)
def test_a_malformed_request_header_is_refused(header: str) -> None:
    with pytest.raises(WireError):
        decode_request_header(bytes.fromhex(header))


@pytest.mark.parametrize(("correlation_id", "client_id"), [(1 << 31, "x"), (1, "x" * 32768), (1, "\ud800")])
def test_a_request_header_that_cannot_be_written_is_refused(correlation_id: int, client_id: str) -> None:
    with pytest.raises(WireError, match="header of Heartbeat v4"):
        encode_request(HeartbeatRequest(), 4, correlation_id, client_id)


# -- responses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "header"), [(3, "00000102"), (4, "00000102 00")])
def test_response_headers_byte_by_byte(version: int, header: str) -> None:
    assert response_header(258, HEARTBEAT.key, version) == bytes.fromhex(header)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_header_of_an_api_versions_response_never_has_tags(version: int) -> None:
    frame = b"".join(encode_response_parts(ApiVersionsResponse(35), version, 1))  # type: ignore[arg-type]

    assert response_header(1, API_VERSIONS.key, version) == bytes.fromhex("00000001")
    assert frame[4:10] == bytes.fromhex("00000001 0023")
    assert decode_response(API_VERSIONS, version, frame[4:]) == (1, ApiVersionsResponse(35))


@pytest.mark.parametrize(("cls", "version"), RESPONSES, ids=case_id)
def test_every_response_is_found_behind_its_header(cls: Any, version: int) -> None:
    response = random_message(cls, version, random.Random(3))

    frame = b"".join(encode_response_parts(response, version, 77))  # type: ignore[arg-type]

    size, body = int.from_bytes(frame[:4], "big"), frame[4:]
    assert size == len(body)
    assert body == response_header(77, cls.API.key, version) + encode(response, version)
    assert decode_response(cls.API, version, body) == (77, response)
    if (cls, version) in KAFKAS and version >= OLDEST_IN_KIO.get(cls.API.key, 0):
        header, read = entity_reader(load_response_schema(cls.API.key, version).__header_schema__)(body, 0)
        assert (read, header.correlation_id) == (len(response_header(77, cls.API.key, version)), 77)


def test_records_that_are_not_bytes_count_in_the_frames_length() -> None:
    class Region:
        def __len__(self) -> int:
            return 1000

    region = Region()
    partition = FetchablePartitionResponse(records=region)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    parts = encode_response_parts(response, 12, 1)

    assert sum(1 for part in parts if part is region) == 1
    written = io.BytesIO()
    for part in parts:
        written.write(bytes(1000) if part is region else part)  # type: ignore[arg-type]
    assert int.from_bytes(written.getvalue()[:4], "big") == len(written.getvalue()) - 4


def test_tags_in_a_response_header_are_skipped() -> None:
    body = bytes.fromhex("00000001 01 904e 02 ffff") + encode(HeartbeatResponse(0, 27), 4)

    assert decode_response(HEARTBEAT, 4, body) == (1, HeartbeatResponse(0, 27))


@pytest.mark.parametrize("frame", ["", "000000", "00000001", "00000001 01 00 05", "00000001 00 00000000"])
def test_a_malformed_response_is_refused(frame: str) -> None:
    with pytest.raises(WireError):
        decode_response(HEARTBEAT, 4, bytes.fromhex(frame))


def test_a_correlation_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WireError):
        response_header(1 << 31, HEARTBEAT.key, 4)
    with pytest.raises(WireError):
        encode_response_parts(HeartbeatResponse(), 4, 1 << 31)


def test_a_client_without_a_name_can_still_ask_for_versions() -> None:
    frame = encode_request(ApiVersionsRequest("holdfast", "1"), 3, 0, "")

    assert decode_request_header(frame[4:]) == (18, 3, 0, "", 11)


# -- error codes ------------------------------------------------------------------------------------------------------


def test_error_codes_have_kafkas_names_and_numbers() -> None:
    theirs = {code.name.upper(): int(code) for code in KioErrorCode}
    ours = {code.name: int(code) for code in ErrorCode}

    assert {name: ours.get(name) for name in theirs} == theirs
    assert sorted(ours.values()) == list(range(-1, 134)), "without gaps, up to Kafka 4.3's newest"
