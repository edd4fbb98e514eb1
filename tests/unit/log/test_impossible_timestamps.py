"""A record whose timestamp fits no field must not end the compaction of its log, nor of all others."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from google_crc32c import value as crc32c

from holdfast.wire.batch import CRC_START, Batch, BatchError, batches
from holdfast.wire.records import Record, encode_batch
from tests.unit.log.keyed_logs import COMPACT, keyed
from tests.unit.log.samples import NOW_MS, append, contents, open_log

TIMESTAMPS_AT = 27
LATEST = 2**63 - 1


def impossible() -> list[Batch]:
    """Two records of one key; the second is later than the first by all the time there is."""
    data = bytearray(encode_batch([Record(0, 0, b"k", b"1"), Record(1, LATEST, b"k", b"2")]))
    struct.pack_into(">qq", data, TIMESTAMPS_AT, NOW_MS, NOW_MS)
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    return list(batches(data))


def test_a_compacted_log_refuses_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)

    with pytest.raises(BatchError, match="timestamp does not fit"):
        append(log, impossible())


def test_compaction_leaves_it_as_it_is_and_continues(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, compacts=False))
    append(log, impossible())
    stored = contents(log)[0]
    log.config = COMPACT
    for number in range(20):
        append(log, keyed([(b"other", b"%d" % number * 20)]))

    done = log.compact(NOW_MS, lambda: False)

    assert done is not None and done.records_after < done.records_before
    assert contents(log)[0] == stored
