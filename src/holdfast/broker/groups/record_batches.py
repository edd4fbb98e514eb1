"""The coordinator's records in record batches: the parts that the group logs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.wire.batch import HEADER_SIZE, Buffer
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupRecord, decode_record, encode_record
from holdfast.wire.offset_records import OffsetRecords, decode_offsets, encode_offsets
from holdfast.wire.records import Record as LogRecord
from holdfast.wire.records import decode_records, encoded_record, unpack_batch

RECORDS_AT_A_TIME: Final = 1_000
"""Records that a replay yields together, about a millisecond's work for the event loop."""


def encode_group_records(records: Sequence[GroupRecord], now_ms: int, first: int) -> bytes:
    """The records without a header, for a batch with the timestamp `now_ms` that has `first` other records already."""
    if type(records) is OffsetRecords and first == 0:
        return bytes(encode_offsets(records, now_ms).data[HEADER_SIZE:])
    return b"".join(
        [
            encoded_record(LogRecord(index, now_ms, *encode_record(*record)), 0, now_ms)
            for index, record in enumerate(records, first)
        ]
    )


def decode_group_batch(batch: Buffer) -> tuple[Sequence[Sequence[GroupRecord]], WireError | None]:
    """The readable records of a batch, and why the others are not."""
    try:
        unpacked = unpack_batch(batch)
        offsets = decode_offsets(*unpacked)
        if offsets is not None:
            return offsets, None
        records = decode_records(*unpacked)
    except WireError as error:
        return (), error
    found: list[GroupRecord] = []
    unreadable: WireError | None = None
    for record in records:
        try:
            decoded = None if record.key is None else decode_record(record.key, record.value)
        except WireError as error:
            unreadable = error
            continue
        if decoded is not None:
            found.append(decoded)
    return [found[start : start + RECORDS_AT_A_TIME] for start in range(0, len(found), RECORDS_AT_A_TIME)], unreadable
