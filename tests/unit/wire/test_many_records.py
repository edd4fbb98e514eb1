"""A batch may claim any number of records; what cannot be looked at in reasonable time is not taken in."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c

from holdfast.wire.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAX_RECORDS, BatchError, batches
from holdfast.wire.compression import Codec, compress

SMALLEST_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")


def batch_of(count: int) -> bytes:
    records = compress(Codec.ZSTD, SMALLEST_RECORD * count)
    data = bytearray(
        struct.pack(">qiibIhiqqqhii", 0, 0, 0, MAGIC, 0, Codec.ZSTD, count - 1, 0, 0, -1, -1, -1, count) + records
    )
    struct.pack_into(">i", data, LENGTH_OVERHEAD - 4, len(data) - LENGTH_OVERHEAD)
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    assert len(data) < HEADER_SIZE + 1_000, "packed, they are next to nothing"
    return bytes(data)


def test_as_many_records_as_allowed_are_taken() -> None:
    (batch,) = batches(batch_of(MAX_RECORDS))

    assert batch.header.record_count == MAX_RECORDS


def test_one_more_is_refused() -> None:
    with pytest.raises(BatchError, match="500001 records in one batch"):
        list(batches(batch_of(MAX_RECORDS + 1)))
