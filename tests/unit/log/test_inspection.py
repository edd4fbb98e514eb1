"""What is found in the records of a batch: the same as by decoding them, in a fraction of the time."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log.config import LogConfig
from holdfast.log.inspection import (
    MAX_NAMED_ERRORS,
    PAUSE_RECORDS,
    RecordsRefused,
    inspect,
    inspected,
    needs_inspection,
    run_to_completion,
)
from holdfast.wire.batch import HEADER_SIZE, Batch, BatchError, BatchFault, parse_header
from holdfast.wire.records import MAX_INT64, Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
COMPACTED = LogConfig(compacts=True)
HOUR = 3_600_000

texts = st.none() | st.binary(max_size=300) | st.just(bytes(70_000))


def batch_of(records: list[Record]) -> Batch:
    data = memoryview(bytearray(encode_batch(records)))
    return Batch(parse_header(data), data)


def records_of(batch: Batch) -> bytes:
    return bytes(batch.data[HEADER_SIZE:])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(texts, texts, st.integers(-(10**6), 10**12)), min_size=1, max_size=400))
def test_it_finds_what_decoding_finds(contents: list[tuple[bytes | None, bytes | None, int]]) -> None:
    records = [
        Record(index, NOW + later, key, value, (("h", b"x"),) if index % 3 == 1 else ())
        for index, (key, value, later) in enumerate(contents)
    ]
    batch = batch_of(records)

    found = run_to_completion(inspect(records_of(batch), batch.header, NOW - HOUR, NOW + HOUR))

    decoded = decode_batch(batch.data)
    assert found.latest == max(record.timestamp for record in decoded)
    assert found.keyless == [index for index, record in enumerate(decoded) if record.key is None]
    assert found.untimely == [
        (index, record.timestamp) for index, record in enumerate(decoded) if abs(record.timestamp - NOW) > HOUR
    ]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_the_bytes_are_it_ends_with_an_answer_or_a_batch_error(data: st.DataObject) -> None:
    batch = batch_of([Record(index, NOW, b"key", b"value") for index in range(20)])
    spoilt = bytearray(records_of(batch))
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(spoilt)))

    try:
        found = run_to_completion(inspect(bytes(spoilt[:cut]), batch.header))
    except BatchError as error:
        assert error.fault is BatchFault.INVALID_RECORD
    else:
        assert len(found.keyless) <= 20


def test_more_records_than_there_can_be_are_refused_before_they_are_looked_at() -> None:
    batch = batch_of([Record(index, NOW, b"key", b"value") for index in range(20)])
    header = batch.header._replace(record_count=100_000, last_offset_delta=99_999)

    with pytest.raises(BatchError, match="100000 records cannot be in"):
        next(inspect(records_of(batch), header))


@pytest.mark.parametrize("bytes_short", [1, 5])
def test_records_that_end_early_are_refused(bytes_short: int) -> None:
    batch = batch_of([Record(index, NOW, b"key", b"value") for index in range(20)])

    with pytest.raises(BatchError, match="does not fit"):
        run_to_completion(inspect(records_of(batch)[:-bytes_short], batch.header))


def test_bytes_after_the_last_record_are_refused() -> None:
    batch = batch_of([Record(index, NOW, b"key", b"value") for index in range(20)])

    with pytest.raises(BatchError, match="3 bytes after the last record"):
        run_to_completion(inspect(records_of(batch) + b"\x00\x00\x00", batch.header))


def test_a_timestamp_that_does_not_fit_is_refused() -> None:
    batch = batch_of([Record(0, NOW, b"key", b"value"), Record(1, NOW + 1, b"key", b"value")])

    with pytest.raises(BatchError, match="does not fit 64 bits"):
        run_to_completion(inspect(records_of(batch), batch.header._replace(base_timestamp=MAX_INT64)))


def test_it_pauses_every_few_records() -> None:
    batch = batch_of([Record(index, NOW, b"key", b"value") for index in range(10 * PAUSE_RECORDS)])

    assert sum(1 for _ in inspect(records_of(batch), batch.header)) == 10


def test_the_bad_records_of_a_compacted_topic_are_named() -> None:
    batch = batch_of([Record(index, NOW, None if index % 10 == 3 else b"key", b"value") for index in range(100)])

    with pytest.raises(RecordsRefused, match="10 record errors in total") as refused:
        run_to_completion(inspected(COMPACTED, batch, records_of(batch), "topic-0", NOW))

    assert refused.value.fault is BatchFault.INVALID_RECORD
    assert [error.batch_index for error in refused.value.errors] == list(range(3, 100, 10))


def test_without_compaction_they_are_stored() -> None:
    batch = batch_of([Record(0, NOW, None, b"value")])

    assert not needs_inspection(LogConfig(), batch.header, NOW)
    assert run_to_completion(inspected(LogConfig(), batch, records_of(batch), "topic-0", NOW)) is batch


def test_no_more_than_some_thousands_are_named() -> None:
    batch = batch_of([Record(index, NOW, None, None) for index in range(MAX_NAMED_ERRORS + 500)])

    with pytest.raises(RecordsRefused) as refused:
        run_to_completion(inspected(COMPACTED, batch, records_of(batch), "topic-0", NOW))

    assert len(refused.value.errors) == MAX_NAMED_ERRORS


def test_records_of_another_time_are_named() -> None:
    config = LogConfig(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR)
    later = {3: 2 * HOUR, 7: -2 * HOUR}
    batch = batch_of([Record(index, NOW + later.get(index, 0), b"key", b"value") for index in range(10)])

    assert needs_inspection(config, batch.header, NOW)
    with pytest.raises(RecordsRefused, match="invalid timestamp") as refused:
        run_to_completion(inspected(config, batch, records_of(batch), "topic-0", NOW))

    assert refused.value.fault is BatchFault.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.value.errors] == [3, 7]
    assert f"[{NOW - HOUR}, {NOW + HOUR}]" in refused.value.errors[0].message


def test_a_maximum_timestamp_that_cannot_be_is_taken_from_the_records() -> None:
    # given a batch from a client that never sets the field
    batch = batch_of([Record(index, NOW + later, b"key", b"value") for index, later in enumerate((500, 900, 700))])
    struct.pack_into(">q", batch.data, 35, -1)
    batch = Batch(parse_header(batch.data), batch.data)

    # when
    assert needs_inspection(LogConfig(), batch.header, NOW)
    repaired = run_to_completion(inspected(LogConfig(), batch, records_of(batch), "topic-0", NOW))

    # then
    assert repaired.header.max_timestamp == NOW + 900
    assert decode_batch(repaired.data)[2].timestamp == NOW + 700
