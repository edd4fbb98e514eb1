"""Bytes from somebody who errs or means harm: they end in WireError, soon, and at the price of little memory."""

from __future__ import annotations

import contextlib
import functools
import random
import tracemalloc
from typing import Any

import pytest

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from holdfast.wire.codegen import MAX_ELEMENTS
from holdfast.wire.errors import WireError
from holdfast.wire.message import decode, decoder, encode
from holdfast.wire.varint import encode_uvarint
from tests.support.wire_messages import CASES, case_id, random_message

SMALL = 120
"""Bytes of the messages that are tampered with at every position."""
MEMORY_LIMIT = 1 << 20
"""What a small message may cost at most, however it is tampered with."""

HUGE = [
    bytes.fromhex("7fffffff"),  # the largest count, and a string of 32,767 bytes
    bytes.fromhex("fffffffe"),  # negative, but not null
    bytes.fromhex("ffffffff0f"),  # the largest varint
    bytes.fromhex("ffffffffffffffffff01"),  # a varint that does not end
]


@functools.cache
def small_encoding(cls: Any, version: int) -> bytes:
    rng = random.Random(f"{cls.__name__} {version}")
    encodings = (encode(random_message(cls, version, rng), version) for _ in range(40))
    return max((encoded for encoded in encodings if len(encoded) <= SMALL), key=len, default=encode(cls(), version))


def decode_or_refuse(cls: Any, version: int, data: bytes) -> None:
    """Anything but a message or a WireError fails the test."""
    with contextlib.suppress(WireError):
        decode(cls, version, data)


# -- every message, every version -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_message_cut_short_anywhere_is_refused(cls: Any, version: int) -> None:
    encoded = small_encoding(cls, version)
    for size in range(len(encoded)):
        with pytest.raises(WireError):
            decode(cls, version, encoded[:size])


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_damaged_message_is_refused_or_read(cls: Any, version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    encoded = small_encoding(cls, version)
    for _ in range(40 if encoded else 0):
        damaged = bytearray(encoded)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        decode_or_refuse(cls, version, bytes(damaged))
    for _ in range(20):
        decode_or_refuse(cls, version, rng.randbytes(rng.randrange(100)))


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_huge_length_or_count_anywhere_costs_no_memory(cls: Any, version: int) -> None:
    encoded = small_encoding(cls, version)
    decoder(cls, version)  # generating the code has a price of its own
    tracemalloc.start()
    try:
        for position in range(len(encoded)):
            for huge in HUGE:
                decode_or_refuse(cls, version, encoded[:position] + huge + encoded[position + len(huge) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MEMORY_LIMIT


@pytest.mark.parametrize(("cls", "version"), [case for case in CASES if case[1] >= case[0].FLEXIBLE], ids=case_id)
def test_unknown_tags_are_skipped(cls: Any, version: int) -> None:
    """The tagged fields of the message itself are its last; unknown ones follow the known ones, having higher tags."""
    message = cls()
    encoded = encode(message, version)
    assert encoded.endswith(b"\x00"), "no tagged field is set"
    unknown = b"".join(
        encode_uvarint(tag) + encode_uvarint(len(body)) + body
        for tag, body in ((77, b""), (9_999, b"x"), (20_000, b"y" * 200), (0xFFFFFFFF, b"z"))
    )

    extended = encoded[:-1] + encode_uvarint(4) + unknown

    assert decoder(cls, version)(extended, 0) == (message, len(extended))


# -- single dangers ---------------------------------------------------------------------------------------------------


def test_more_elements_than_allowed_are_refused_at_their_count() -> None:
    count = MAX_ELEMENTS + 1
    nothing_but_empty_strings = encode_uvarint(count + 1) + b"\x01" * count + b"\x00\x00"

    with pytest.raises(WireError, match="more than 200000 array elements"):
        decode(DescribeGroupsRequest, 5, nothing_but_empty_strings)


def test_as_many_elements_as_allowed_are_read() -> None:
    request = DescribeGroupsRequest(groups=[""] * MAX_ELEMENTS)

    assert len(decode(DescribeGroupsRequest, 5, encode(request, 5)).groups) == MAX_ELEMENTS


def test_the_elements_of_all_arrays_count_together() -> None:
    half = [0] * (MAX_ELEMENTS // 2)
    request = OffsetFetchRequest(topics=[OffsetFetchRequestTopic("a", half), OffsetFetchRequestTopic("b", half)])
    encoded = encode(request, 7)

    with pytest.raises(WireError, match="more than 200000 array elements"):
        decode(OffsetFetchRequest, 7, encoded)


def test_more_tags_than_allowed_are_refused() -> None:
    encoded = encode(HeartbeatRequest(), 4)[:-1]
    tags = encode_uvarint(MAX_ELEMENTS + 1) + b"\x01\x00" * (MAX_ELEMENTS + 1)

    with pytest.raises(WireError, match="tagged fields"):
        decode(HeartbeatRequest, 4, encoded + tags)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, bytes.fromhex("0001 ff 00000000 0000")),
        (0, bytes.fromhex("0002 c080 00000000 0000")),  # an overlong NUL
        (4, bytes.fromhex("02 ff 00000000 01 00 00")),
        (4, bytes.fromhex("04 eda080 00000000 01 00 00")),  # half of a surrogate pair
    ],
)
def test_what_is_not_utf8_is_refused(version: int, data: bytes) -> None:
    with pytest.raises(WireError, match="utf-8"):
        decode(HeartbeatRequest, version, data)


@pytest.mark.parametrize(
    ("version", "data"), [(0, "fffe 00000000 0000"), (0, "ffff 00000000 0000"), (4, "00 00000000")]
)
def test_null_and_negative_lengths_are_refused_where_a_value_is_required(version: int, data: str) -> None:
    with pytest.raises(WireError, match="where a value is required"):
        decode(HeartbeatRequest, version, bytes.fromhex(data))
