"""Batch headers: what is refused before it is stored, and what the broker writes into them."""

import struct
from collections.abc import Callable

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.batch import (
    BatchError,
    BatchFault,
    batches,
    parse_header,
    stamp,
)
from holdfast.wire.compression import Codec
from holdfast.wire.errors import WireError
from holdfast.wire.records import Record, decode_batch, encode_batch

Change = Callable[[bytearray], None]


def a_batch(count: int = 3, **options: int) -> bytearray:
    records = [Record(n, 1_000 + n, b"key", b"value %d" % n) for n in range(count)]
    return bytearray(
        encode_batch(
            records,
            producer_id=options.get("producer_id", 7),
            producer_epoch=options.get("producer_epoch", 1),
            base_sequence=options.get("base_sequence", 42),
        )
    )


def sealed(batch: bytearray) -> bytearray:
    """With the CRC that its bytes have now."""
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def put(form: str, position: int, value: int) -> Change:
    return lambda batch: struct.pack_into(form, batch, position, value)


def test_a_header_is_read_field_by_field() -> None:
    header = parse_header(bytes(5) + bytes(a_batch()), 5)

    assert header.base_offset == 0
    assert header.size == len(a_batch())
    assert header.leader_epoch == -1
    assert header.magic == 2
    assert header.attributes == 0
    assert (header.last_offset_delta, header.record_count) == (2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 42)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_records_field_is_split_into_its_batches(kind: type) -> None:
    field = bytes(a_batch(1) + a_batch(2) + a_batch(5))

    found = list(batches(kind(field)))

    assert [batch.header.record_count for batch in found] == [1, 2, 5]
    assert b"".join(batch.data for batch in found) == field


def test_an_empty_field_has_no_batches() -> None:
    assert list(batches(b"")) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (put(">i", 57, 2), BatchFault.INVALID_RECORD),  # count below the offsets
        (put(">i", 57, 0), BatchFault.INVALID_RECORD),
        (put(">i", 57, -1), BatchFault.INVALID_RECORD),
        (put(">i", 23, 3), BatchFault.INVALID_RECORD),
        (put(">i", 23, -1), BatchFault.INVALID_RECORD),
        (put(">h", 21, 5), BatchFault.UNSUPPORTED_CODEC),
        (put(">h", 21, 7), BatchFault.UNSUPPORTED_CODEC),
        (put(">h", 21, 0x08), BatchFault.INVALID_TIMESTAMP),
        (put(">h", 21, 0x20), BatchFault.INVALID_RECORD),
        (put(">h", 21, 0x40), BatchFault.INVALID_RECORD),
        (put(">q", 27, -2), BatchFault.INVALID_TIMESTAMP),
        (put(">i", 53, -1), BatchFault.INVALID_RECORD),
        (put(">h", 51, -1), BatchFault.INVALID_RECORD),
    ],
)
def test_contents_that_a_client_may_not_send(change: Change, fault: BatchFault) -> None:
    batch = a_batch()
    assert list(batches(batch)), "it is fine before the change"

    change(batch)

    with pytest.raises(BatchError) as refusal:
        list(batches(sealed(batch)))
    assert refusal.value.fault is fault


def test_more_records_than_bytes_are_refused_without_counting_them() -> None:
    batch = a_batch()
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)

    with pytest.raises(BatchError, match="2147483647 records"):
        list(batches(sealed(batch)))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magic_has_a_fault_of_its_own(magic: int) -> None:
    batch = a_batch()
    batch[16] = magic

    with pytest.raises(BatchError) as refusal:
        list(batches(batch))
    assert refusal.value.fault is BatchFault.UNSUPPORTED_MAGIC


@given(position=st.integers(21, 200), bit=st.integers(0, 7))
def test_a_flipped_bit_behind_the_crc_is_noticed(position: int, bit: int) -> None:
    batch = a_batch(10)
    batch[position] ^= 1 << bit

    with pytest.raises(BatchError) as refusal:
        list(batches(batch))
    assert refusal.value.fault is BatchFault.CORRUPT


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_hostile_length_is_refused(length: int) -> None:
    batch = a_batch()
    struct.pack_into(">i", batch, 8, length)

    with pytest.raises(BatchError) as refusal:
        list(batches(batch))
    assert refusal.value.fault is BatchFault.CORRUPT


@given(cut=st.integers(1, 100))
def test_a_truncated_batch_is_refused(cut: int) -> None:
    batch = a_batch()

    with pytest.raises(BatchError):
        list(batches(batch[: max(1, len(batch) - cut)]))


@given(data=st.binary(min_size=1, max_size=300))
def test_garbage_ends_in_one_error_type(data: bytes) -> None:
    with pytest.raises(WireError):
        list(batches(data))


@pytest.mark.parametrize("writable", [True, False])
def test_a_stamp_writes_offset_and_epoch_and_leaves_the_crc_alone(writable: bool) -> None:
    original = bytes(a_batch())
    buffer = bytearray(original) if writable else original

    pieces = stamp(memoryview(buffer), 1234, 5)

    stored = b"".join(pieces)
    header = parse_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1234, 5)
    assert stored[16:] == original[16:]
    assert stored[8:12] == original[8:12]
    assert list(batches(stored)), "the CRC still holds"
    assert (len(pieces) == 1) is writable, "a writable buffer is stamped in place"


def test_a_stamp_in_place_copies_nothing() -> None:
    buffer = a_batch()

    stamp(memoryview(buffer), 1234, 5)

    assert parse_header(buffer).base_offset == 1234


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_replaces_the_timestamps(codec: Codec) -> None:
    sent = encode_batch([Record(0, 10, b"k", b"v"), Record(1, 20, b"k", b"w")], compression=codec)

    stored = b"".join(stamp(memoryview(sent), 100, 0, append_time_ms=99_999))

    header = parse_header(stored)
    assert header.has_log_append_time
    assert header.max_timestamp == 99_999
    assert header.codec == codec
    assert [(r.offset, r.timestamp, r.value) for r in decode_batch(stored)] == [
        (100, 99_999, b"v"),
        (101, 99_999, b"w"),
    ]
