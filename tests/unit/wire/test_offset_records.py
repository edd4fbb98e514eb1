"""The records of a commit are written and read many at a time; one by one they must be the same."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.types import TopicPartition
from holdfast.wire.batch import parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_record,
    encode_value,
)
from holdfast.wire.offset_records import OffsetRecords, decode_offsets, encode_offsets
from holdfast.wire.records import Record, batch_of, decode_batch, encode_batch, encoded_record, unpack_batch

NOW_MS = 1_700_000_000_000
INT32 = st.sampled_from([-(2**31), -1, 0, 1, 255, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1)
INT64 = st.sampled_from([-(2**63), -1, 0, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["g" * 200, "é" * 10_000])
KEYS = st.tuples(st.sampled_from(["orders", "payments", ""]) | NAMES, INT32)
PLAIN = st.builds(OffsetCommitValue, INT64, INT32, st.just(""), INT64)
ANY = st.builds(
    OffsetCommitValue,
    INT64,
    INT32,
    st.just("") | NAMES,
    INT64,
    st.just(-1) | INT64,
    st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
)
TIMES = st.sampled_from([0, 1, -1, 3, 500])
Offsets = dict[TopicPartition, OffsetCommitValue]


def one_by_one(records: Sequence[GroupRecord]) -> bytes:
    encoded = [Record(index, NOW_MS, *encode_record(key, value)) for index, (key, value) in enumerate(records)]
    return encode_batch(encoded)


def read_one_by_one(batch: bytes) -> list[GroupRecord]:
    found = []
    for record in decode_batch(batch):
        assert record.key is not None
        decoded = decode_record(bytearray(record.key), record.value and bytearray(record.value))
        assert decoded is not None
        found.append(decoded)
    return found


def replayed(records: Sequence[GroupRecord]) -> dict[tuple[str, str, int], Any]:
    """What a coordinator makes of them: the last value of each key."""
    offsets = {}
    for key, value in records:
        assert isinstance(key, OffsetCommitKey)
        offsets[key.group, key.topic, key.partition] = value
    return offsets


def read_at_once(batch: bytes) -> list[GroupRecord] | None:
    found = decode_offsets(*unpack_batch(batch))
    return None if found is None else [record for records in found for record in records]


@given(NAMES, st.dictionaries(KEYS, ANY, min_size=1, max_size=8))
def test_a_commit_is_written_as_one_by_one(group: str, offsets: Offsets) -> None:
    records = OffsetRecords(group, offsets)
    try:
        expected = one_by_one(list(records))
    except WireError:
        with pytest.raises(WireError):
            encode_offsets(records, NOW_MS)
        return
    batch = encode_offsets(records, NOW_MS)
    assert bytes(batch.data) == expected
    assert batch.header == parse_header(expected)
    assert read_one_by_one(expected) == [(key, kept(value)) for key, value in records]


def kept(value: object) -> OffsetCommitValue:
    """The value as the version that it is stored in keeps it."""
    assert isinstance(value, OffsetCommitValue)
    decoded = decode_record(encode_record(OffsetCommitKey("g", "t", 0), None)[0], encode_value(value))
    assert decoded is not None and isinstance(decoded[1], OffsetCommitValue)
    return decoded[1]


@given(NAMES, st.dictionaries(KEYS, PLAIN, min_size=1, max_size=8))
def test_a_commit_is_read_as_one_by_one(group: str, offsets: Offsets) -> None:
    batch = bytes(encode_offsets(OffsetRecords(group, offsets), NOW_MS).data)
    assert read_at_once(batch) == read_one_by_one(batch) == list(OffsetRecords(group, offsets))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 1_000, 8_191, 8_192, 8_200])
def test_a_commit_of_any_size_is_the_same(count: int) -> None:
    """Offset deltas have one byte, two, or three; the last are read one by one."""
    records = OffsetRecords("g", {("orders", n): OffsetCommitValue(n * n, n, "", NOW_MS + n) for n in range(count)})
    batch = bytes(encode_offsets(records, NOW_MS).data)
    assert batch == one_by_one(list(records))
    assert read_one_by_one(batch) == list(records)
    assert read_at_once(batch) == (list(records) if count <= 8_192 else None)


@given(
    st.lists(
        st.tuples(NAMES, KEYS, PLAIN, st.integers(0, 300), st.sampled_from([0, 1, -1, 3, 500])), min_size=1, max_size=8
    ),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
)
def test_offsets_of_many_groups_are_read_as_one_by_one(
    rows: list[tuple[str, TopicPartition, OffsetCommitValue, int, int]], codec: Codec
) -> None:
    """As Apache Kafka and compaction leave them: groups and topics in any order, gaps, timestamps of their own."""
    offset = 0
    records: list[Record] = []
    for group, (topic, partition), value, gap, time in rows:
        key, encoded = encode_record(OffsetCommitKey(group, topic, partition), value)
        records.append(Record(offset, NOW_MS + time, key, encoded))
        offset += 1 + gap
    batch = encode_batch(records, compression=codec)
    found = read_at_once(batch)
    expected = read_one_by_one(batch)
    if any(abs(time - rows[0][4]) > 63 for *_, time in rows):
        assert found is None
    else:
        assert found is not None
        assert replayed(found) == replayed(expected)


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 3))
def test_damaged_records_are_never_read_as_others(position: int, byte: int, records_more: int) -> None:
    """With a CRC that is right, both ways see the same in it."""
    offsets = {("orders", n): OffsetCommitValue(n, -1, "", NOW_MS) for n in range(5)}
    records, header = unpack_batch(bytes(encode_offsets(OffsetRecords("group", offsets), NOW_MS).data))
    damaged = bytearray(records)
    damaged[position % len(damaged)] = byte
    batch = bytes(batch_of(bytes(damaged), header.record_count + records_more, NOW_MS).data)
    try:
        found = read_at_once(batch)
    except WireError:
        found = None
    if found is None:
        return  # it is left to the other way
    assert replayed(found) == replayed(read_one_by_one(batch))


@pytest.mark.parametrize(
    "other",
    [
        (OffsetCommitKey("g", "orders", 1), None),
        (OffsetCommitKey("g", "orders", 1), OffsetCommitValue(1, -1, "metadata", 1)),
        (OffsetCommitKey("g", "orders", 1), OffsetCommitValue(1, -1, "", 1, 2)),
        (GroupMetadataKey("g"), None),
    ],
    ids=["tombstone", "metadata", "expiry", "group"],
)
def test_any_other_record_is_left_to_the_other_way(other: GroupRecord) -> None:
    plain = OffsetCommitKey("g", "orders", 0), OffsetCommitValue(1, -1, "", 1)
    for records in ([other], [plain, other], [other, plain]):
        assert read_at_once(one_by_one(records)) is None
    assert read_at_once(one_by_one([plain, plain])) == [plain]


def test_a_length_beyond_the_batch_is_left_to_the_other_way() -> None:
    key, value = encode_record(OffsetCommitKey("g", "orders", 0), OffsetCommitValue(1, -1, "", 1))
    record = encoded_record(Record(0, NOW_MS, key, value), 0, NOW_MS)
    for cut in range(1, len(record)):
        assert decode_offsets(record[:cut], batch_of(record[:cut], 1, NOW_MS).header) is None
    huge = b"\xfe\xff\xff\xff\x0f\x00\x00\x00\xfe\xff\xff\xff\x0f" + record[6:]
    assert decode_offsets(huge, batch_of(huge, 1, NOW_MS).header) is None


@given(st.sampled_from([-(2**63), -1, 0, NOW_MS, 2**63 - 128, 2**63 - 64, 2**63 - 1]), st.integers(0, 255))
def test_a_timestamp_that_does_not_fit_is_found_by_both(base: int, delta: int) -> None:
    key, value = encode_record(OffsetCommitKey("g", "orders", 0), OffsetCommitValue(1, -1, "", 1))
    record = bytearray(encoded_record(Record(0, 0, key, value), 0, 0))
    record[2 if record[0] < 0x80 else 3] = delta
    batch = bytes(batch_of(bytes(record), 1, base).data)
    found = read_at_once(batch)
    if found is not None:
        assert found == read_one_by_one(batch)


def test_numbers_that_do_not_fit_are_errors() -> None:
    for topic, partition, value in (
        ("t", 2**31, OffsetCommitValue(0, 0, "", 0)),
        ("t", 0, OffsetCommitValue(2**63, 0, "", 0)),
        ("t" * 40_000, 0, OffsetCommitValue(0, 0, "", 0)),
        ("\ud800", 0, OffsetCommitValue(0, 0, "", 0)),
    ):
        with pytest.raises(WireError):
            encode_offsets(OffsetRecords("g", {(topic, partition): value}), NOW_MS)


def test_the_records_of_a_commit_are_a_sequence() -> None:
    first, second = OffsetCommitValue(1, -1, "", 1), OffsetCommitValue(2, -1, "", 1)
    records = OffsetRecords("g", {("orders", 0): first, ("orders", 1): second})
    assert len(records) == 2
    assert records[0] == (OffsetCommitKey("g", "orders", 0), first)
    assert records[1:] == [(OffsetCommitKey("g", "orders", 1), second)]
