"""An array of short structs is decoded at once; one by one, as the sliced decoder does it, must give the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.errors import WireError
from holdfast.wire.message import decoder, encode, sliced_decoder

VERSIONS = range(11)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
METADATA = st.sampled_from(["", "", "", None, "metadata", "é" * 100])
PARTITIONS = st.lists(st.tuples(INT32, INT64, INT32, METADATA), max_size=6)


def one_by_one(cls: type[Any], version: int, data: bytes) -> Any:
    work = sliced_decoder(cls, version)(data, 0)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        except WireError:
            return WireError


def at_once(cls: type[Any], version: int, data: bytes) -> Any:
    try:
        return decoder(cls, version)(data, 0)
    except WireError:
        return WireError


def commit(version: int, partitions: list[tuple[int, int, int, str | None]]) -> bytes:
    asked = [
        OffsetCommitRequestPartition(index, offset, epoch if version >= 6 else -1, committed_metadata=metadata)
        for index, offset, epoch, metadata in partitions
    ]
    name = "orders" if version < 10 else ""
    return encode(OffsetCommitRequest("g", 1, "m", topics=[OffsetCommitRequestTopic(name, partitions=asked)]), version)


@pytest.mark.parametrize("version", VERSIONS)
@given(partitions=PARTITIONS)
def test_every_commit_is_decoded_the_same(version: int, partitions: list[tuple[int, int, int, str | None]]) -> None:
    data = commit(version, partitions)
    message, end = at_once(OffsetCommitRequest, version, data)
    assert (message, end) == one_by_one(OffsetCommitRequest, version, data)
    assert end == len(data)
    assert [each.committed_metadata for each in message.topics[0].partitions] == [row[3] for row in partitions]


@pytest.mark.parametrize("version", VERSIONS)
@given(position=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 40), bytes_more=st.binary(max_size=3))
def test_hostile_bytes_are_decoded_the_same(
    version: int, position: int, byte: int, cut: int, bytes_more: bytes
) -> None:
    """Another length, a tag, an end too soon: where one refuses, the other does."""
    data = bytearray(commit(version, [(index, 7 * index, -1, "") for index in range(4)]))
    data[position % len(data)] = byte
    hostile = bytes(data[: len(data) - cut]) + bytes_more
    assert at_once(OffsetCommitRequest, version, hostile) == one_by_one(OffsetCommitRequest, version, hostile)


@pytest.mark.parametrize("version", range(1, 10))
def test_structs_without_strings_are_decoded_the_same(version: int) -> None:
    epoch = 3 if version >= 4 else -1
    asked = [ListOffsetsPartition(index, current_leader_epoch=epoch, timestamp=-1) for index in range(3)]
    data = encode(ListOffsetsRequest(topics=[ListOffsetsTopic("orders", asked)]), version)
    message, _ = at_once(ListOffsetsRequest, version, data)
    assert message.topics[0].partitions == asked
    assert (message, len(data)) == one_by_one(ListOffsetsRequest, version, data)


def test_a_tag_is_skipped_as_one_by_one() -> None:
    data = bytearray(commit(9, [(0, 5, -1, ""), (1, 6, -1, "")]))
    # The tags of the last partition, of its topic, and of the request are the last three bytes.
    tagged = bytes(data[:-3]) + b"\x01\x63\x02ab" + bytes(data[-2:])
    message, end = at_once(OffsetCommitRequest, 9, tagged)
    assert [each.committed_offset for each in message.topics[0].partitions] == [5, 6]
    assert (message, end) == one_by_one(OffsetCommitRequest, 9, tagged)
