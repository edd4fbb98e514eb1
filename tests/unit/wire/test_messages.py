"""Every message in every version: what is encoded is decoded again, and other implementations agree on the bytes."""

from __future__ import annotations

import io
import random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from holdfast.log.inspection import run_to_completion
from holdfast.wire.apis.api_versions import ApiVersionsResponse
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.errors import WireError
from holdfast.wire.fields import ZERO_UUID, specs_of
from holdfast.wire.message import decode, decoder, encode, sliced_decoder, sliced_encoder
from tests.support.wire_messages import (
    CASES,
    FIRST_OF_OURS,
    KAFKAS,
    MESSAGES,
    case_id,
    default_of,
    messages,
    random_message,
    restricted,
)

EXAMPLES = 4
OLDEST_IN_KIO = {8: 2, 9: 1}
"""Kafka 4 dropped what librdkafka still looks for; kio has only what Kafka 4 has."""


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_encoded_is_decoded_again(cls: Any, data: st.DataObject) -> None:
    drawn = data.draw(messages(cls))
    for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
        message = restricted(drawn, version)

        encoded = encode(message, version)

        assert decoder(cls, version)(encoded, 0) == (message, len(encoded))


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_in_slices_the_same_is_encoded_and_decoded(cls: Any, version: int) -> None:
    value = random_message(cls, version, random.Random(11))
    taken: list[Any] = []
    parts: list[Any] = []
    for _ in sliced_encoder(cls, version)(value, parts):
        taken += parts
        parts.clear()

    encoded = b"".join([*taken, *parts])

    assert encoded == encode(value, version)
    assert run_to_completion(sliced_decoder(cls, version)(encoded, 0)) == (value, len(encoded))


def test_decoding_in_slices_can_pause_at_each_element() -> None:
    value = MetadataRequest([MetadataRequestTopic(name=str(number)) for number in range(100)])

    assert sum(1 for _ in sliced_encoder(MetadataRequest, 9)(value, [])) > 100
    assert sum(1 for _ in sliced_decoder(MetadataRequest, 9)(encode(value, 9), 0)) > 100


def test_in_slices_malformed_input_ends_in_a_wire_error() -> None:
    with pytest.raises(WireError, match="length 5 past the end"):
        run_to_completion(sliced_decoder(MetadataRequest, 4)(b"\x00\x00\x00\x01\x00\x05ab", 0))


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_message_is_found_at_any_position_of_any_kind_of_buffer(cls: Any, version: int) -> None:
    message = random_message(cls, version, random.Random(7))
    encoded = encode(message, version)

    for buffer in (b"abc" + encoded + b"de", bytearray(b"abc" + encoded), memoryview(b"abc" + encoded)):
        assert decoder(cls, version)(buffer, 3) == (message, 3 + len(encoded))


# -- other implementations --------------------------------------------------------------------------------------------


def in_kio(cls: Any, version: int) -> Any:
    load = load_request_schema if cls is cls.API.request else load_response_schema
    return load(cls.API.key, version)


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, version) for cls, version in KAFKAS if version >= OLDEST_IN_KIO.get(cls.API.key, 0)],
    ids=case_id,
)
def test_kio_reads_what_we_write_and_writes_the_same(cls: Any, version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    schema = in_kio(cls, version)
    for _ in range(EXAMPLES):
        message = random_message(cls, version, rng)
        encoded = encode(message, version)

        understood, size = entity_reader(schema)(encoded, 0)
        theirs = io.BytesIO()
        entity_writer(schema)(theirs, understood)

        assert size == len(encoded)
        assert theirs.getvalue() == encoded
        assert decode(cls, version, theirs.getvalue()) == message


def in_kafka_python(cls: Any) -> Any:
    protocol = kafka.protocol
    homes = (protocol.admin, protocol.consumer, protocol.metadata, protocol.producer, protocol.sasl)
    return next(getattr(home, cls.__name__) for home in homes if hasattr(home, cls.__name__))


def assert_same_values(ours: Any, theirs: Any, version: int) -> None:
    """Field by field under the same name: two neighbours of one type that changed places would show here only."""
    for name, spec in specs_of(type(ours)):
        if not spec.present(version) or name.endswith("authorized_operations"):  # those they show as a set
            continue
        if spec.tag is not None and spec.tag >= FIRST_OF_OURS:
            continue
        mine, other = getattr(ours, name), getattr(theirs, name)
        if spec.kind == "array" and mine is not None and spec.element is not None and spec.element.kind == "struct":
            assert len(mine) == len(other)
            for my_item, other_item in zip(mine, other, strict=True):
                assert_same_values(my_item, other_item, version)
        elif spec.kind == "struct" and mine is not None:
            assert_same_values(mine, other, version)
        elif spec.kind == "uuid":
            assert mine == (ZERO_UUID if other is None else other.bytes), name
        elif spec.kind != "struct":
            assert mine == other, name


NOT_IN_KAFKA_PYTHON = {"ConsumerGroupHeartbeat"}
IN_KAFKA_PYTHON = [case for case in KAFKAS if case[0].API.name not in NOT_IN_KAFKA_PYTHON]


@pytest.mark.parametrize(("cls", "version"), IN_KAFKA_PYTHON, ids=case_id)
def test_kafka_python_reads_what_we_write_and_writes_the_same(cls: Any, version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    theirs = in_kafka_python(cls)
    for _ in range(EXAMPLES):
        message = random_message(cls, version, rng)
        if cls is ApiVersionsResponse:
            message.error_code = 0  # kafka-python takes any error for a refusal in the layout of v0
        encoded = encode(message, version)

        understood = theirs.decode(encoded, version=version)
        understood._header = None  # decoded objects lack what encode() looks at
        written = bytes(understood.encode(version=version))

        assert_same_values(message, understood, version)
        assert written == encoded
        assert decode(cls, version, written) == message


# -- the versions that nobody else covers, byte by byte ---------------------------------------------------------------


def test_offset_commit_v0() -> None:
    partition = OffsetCommitRequestPartition(partition_index=3, committed_offset=258, committed_metadata="m")
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])

    expected = bytes.fromhex(
        "0001 67"  # group id
        "00000001 0001 74"  # one topic
        "00000001 00000003"  # one partition
        "0000000000000102 0001 6d"  # offset, metadata
    )
    assert encode(request, 0) == expected
    assert decode(OffsetCommitRequest, 0, expected) == request


def test_offset_commit_v1_has_a_timestamp_per_partition() -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=3, committed_offset=258, commit_timestamp=-1, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=5,
        member_id="me",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )

    expected = bytes.fromhex(
        "0001 67 00000005 0002 6d65"  # group id, generation, member id
        "00000001 0001 74"  # one topic
        "00000001 00000003"  # one partition
        "0000000000000102 ffffffffffffffff ffff"  # offset, timestamp, no metadata
    )
    assert encode(request, 1) == expected
    assert decode(OffsetCommitRequest, 1, expected) == request


@pytest.mark.parametrize("version", [0, 1])
def test_offset_commit_response_v0_and_v1(version: int) -> None:
    topic = OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(3, 22)])
    response = OffsetCommitResponse(topics=[topic])

    expected = bytes.fromhex("00000001 0001 74 00000001 00000003 0016")
    assert encode(response, version) == expected
    assert decode(OffsetCommitResponse, version, expected) == response


def test_offset_fetch_v0() -> None:
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 7])])
    partition = OffsetFetchResponsePartition(partition_index=7, committed_offset=-1, metadata="", error_code=3)
    response = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [partition])])

    expected_request = bytes.fromhex("0001 67 00000001 0001 74 00000002 00000000 00000007")
    expected_response = bytes.fromhex("00000001 0001 74 00000001 00000007 ffffffffffffffff 0000 0003")
    assert encode(request, 0) == expected_request
    assert encode(response, 0) == expected_response
    assert decode(OffsetFetchRequest, 0, expected_request) == request
    assert decode(OffsetFetchResponse, 0, expected_response) == response


# -- fields that a version lacks --------------------------------------------------------------------------------------


def a_value_other_than_default(spec: Any) -> Any:
    if spec.kind == "array":
        return [spec.element.struct()] if spec.element.kind == "struct" else [default_of(spec.element)]
    if spec.kind == "struct":
        return spec.struct()
    return {"bool": not spec.default, "string": "x", "bytes": b"x", "records": b"x", "uuid": b"\x01" * 16}.get(
        spec.kind, 7
    )


def holders(cls: Any, version: int) -> list[tuple[Any, Any]]:
    """(message, struct in it): for every struct that the version has, a message of defaults that holds one."""
    message = cls()
    found = [(message, message)]
    for name, spec in specs_of(cls):
        inner = spec.element.struct if spec.element is not None else spec.struct
        if spec.present(version) and inner is not None:
            for wrapped, struct in holders(inner, version):
                outer = cls()
                setattr(outer, name, [wrapped] if spec.kind == "array" else wrapped)
                found.append((outer, struct))
    return found


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_field_that_the_version_lacks_is_dropped_if_ignorable_and_refused_if_not(cls: Any, version: int) -> None:
    for message, struct in holders(cls, version):
        without = encode(message, version)
        for name, spec in specs_of(type(struct)):
            if spec.present(version):
                continue
            before = getattr(struct, name)
            setattr(struct, name, a_value_other_than_default(spec))
            if spec.ignorable:
                assert encode(message, version) == without
            else:
                with pytest.raises(WireError, match=f"cannot carry {name}"):
                    encode(message, version)
            setattr(struct, name, before)


@pytest.mark.parametrize("cls", MESSAGES, ids=case_id)
def test_versions_outside_the_declared_range_are_refused(cls: Any) -> None:
    for version in (cls.VERSIONS[0] - 1, cls.VERSIONS[1] + 1):
        with pytest.raises(WireError, match="has no version"):
            encode(cls(), version)
        with pytest.raises(WireError, match="has no version"):
            decode(cls, version, b"")
