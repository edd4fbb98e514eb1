"""A record's timestamp counts from its batch's; a liar's sum is a number that no field can hold."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c

from holdfast.wire.batch import CRC_START, BatchError, BatchFault
from holdfast.wire.records import MAX_INT64, Record, decode_batch, encode_batch

BASE_TIMESTAMP_AT = 27


def batch_from(base_timestamp: int, later_by: int) -> bytes:
    """Two records, the second later than the first, after somebody moved the first."""
    data = bytearray(encode_batch([Record(0, 0, b"k", b"v"), Record(1, later_by, b"k", b"v")]))
    struct.pack_into(">q", data, BASE_TIMESTAMP_AT, base_timestamp)
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def test_the_greatest_timestamp_is_read() -> None:
    records = decode_batch(batch_from(MAX_INT64 - 1, 1))

    assert [record.timestamp for record in records] == [MAX_INT64 - 1, MAX_INT64]


@pytest.mark.parametrize(("base", "later_by"), [(MAX_INT64, 1), (-2, -MAX_INT64)])
def test_a_timestamp_past_it_is_refused(base: int, later_by: int) -> None:
    with pytest.raises(BatchError, match="does not fit 64 bits") as refused:
        decode_batch(batch_from(base, later_by))

    assert refused.value.fault is BatchFault.INVALID_RECORD
