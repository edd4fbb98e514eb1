"""Records in a batch: round trips, other people's encoders and decoders, and hostile lengths."""

import contextlib
import datetime
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch as kio_read_batch

from holdfast.wire.batch import Batch, BatchError, batches, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.errors import WireError
from holdfast.wire.records import Record, decode_batch, encode_batch, with_max_timestamp

# kio reads timestamps as datetimes, so they stay within its years.
timestamps = st.integers(0, 4_000_000_000_000)
contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), contents), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, base_offset: int | None = None) -> list[Record]:
    base = draw(st.integers(0, 2**62)) if base_offset is None else base_offset
    count = draw(st.integers(1, 20))
    return [Record(base + n, draw(timestamps), draw(contents), draw(contents), draw(headers)) for n in range(count)]


@given(records=record_lists(), codec=st.sampled_from(Codec))
def test_what_is_encoded_decodes_to_itself(records: list[Record], codec: Codec) -> None:
    data = encode_batch(records, compression=codec, producer_id=9, producer_epoch=2, base_sequence=5)

    assert decode_batch(data) == records
    assert decode_batch(b"before" + data + b"after", 6) == records
    header = parse_header(data)
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)


@given(records=record_lists(base_offset=0))
def test_kio_reads_what_we_write(records: list[Record]) -> None:
    batch, size = kio_read_batch(encode_batch(records), 0)

    assert size == len(encode_batch(records))
    assert [(r.offset, r.key, r.value) for r in batch.records] == [(r.offset, r.key, r.value) for r in records]
    for theirs, ours in zip(batch.records, records, strict=True):
        seconds = datetime.datetime.fromtimestamp(ours.timestamp // 1000, datetime.UTC)
        assert theirs.timestamp == seconds
        assert [(h.key, h.value) for h in theirs.headers] == [(k.encode(), v) for k, v in ours.headers]


@pytest.mark.parametrize("codec", Codec)
@given(records=record_lists(base_offset=0))
@settings(max_examples=50)
def test_aiokafka_reads_what_we_write(codec: Codec, records: list[Record]) -> None:
    theirs = AiokafkaBatch(bytearray(encode_batch(records, compression=codec)))

    assert theirs.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == records


@pytest.mark.parametrize("codec", Codec)
@given(records=record_lists(base_offset=0))
@settings(max_examples=50)
def test_we_read_what_aiokafka_writes(codec: Codec, records: list[Record]) -> None:
    builder = AiokafkaBuilder(2, int(codec), False, 3, 1, 0, 1_000_000)
    for r in records:
        assert builder.append(r.offset, r.timestamp, r.key, r.value, list(r.headers)) is not None
    data = bytes(builder.build())

    assert decode_batch(data) == records
    assert list(batches(data)), "and would store it"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@given(records=record_lists(base_offset=0))
@settings(max_examples=50)
def test_kafka_python_and_we_read_each_other(codec: Codec, records: list[Record]) -> None:
    builder = KafkaPythonBuilder(2, int(codec), False, 3, 1, 0, 1_000_000)
    for r in records:
        assert builder.append(r.offset, r.timestamp, r.key, r.value, list(r.headers)) is not None

    assert decode_batch(bytes(builder.build())) == records
    theirs = KafkaPythonBatch(encode_batch(records, compression=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


def sealed(data: bytes | bytearray) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


@given(records=st.binary(max_size=100), count=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 10))
def test_garbage_behind_a_sound_header_ends_in_one_error_type(records: bytes, count: int) -> None:
    data = bytearray(encode_batch([Record(0, 0, None, None)])[:61] + records)
    struct.pack_into(">i", data, 57, count)

    with contextlib.suppress(WireError):
        decode_batch(sealed(data))


@given(records=record_lists(base_offset=0), data=st.data())
def test_a_changed_byte_ends_in_a_result_or_one_error_type(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records))
    batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(WireError):
        decode_batch(sealed(batch))


HOSTILE = {
    "a record longer than the batch": bytes([0x80, 0x80, 0x80, 0x80, 0x08, 0, 0, 0, 1, 1, 0]),
    "a record of negative length": bytes([0x01, 0, 0, 0, 1, 1, 0]),
    "a key longer than the record": bytes([0x0C, 0, 0, 0, 0x7E, 1, 0]),
    "a key of length -2": bytes([0x0C, 0, 0, 0, 3, 1, 0]),
    "more headers than bytes": bytes([0x0C, 0, 0, 0, 1, 1, 0x7E]),
    "a negative header count": bytes([0x0C, 0, 0, 0, 1, 1, 1]),
    "a varint without an end": bytes([0xFF] * 20),
    "bytes after the last record": bytes([0x0C, 0, 0, 0, 1, 1, 0, 0, 0]),
    "a record longer than its contents": bytes([0x0E, 0, 0, 0, 1, 1, 0, 0]),
    "an offset outside of the batch": bytes([0x0C, 0, 0, 2, 1, 1, 0]),
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_refused(name: str) -> None:
    front = encode_batch([Record(0, 0, None, None)])[:61]
    assert decode_batch(sealed(front + bytes([0x0C, 0, 0, 0, 1, 1, 0]))), "a sound one is not"

    with pytest.raises(BatchError):
        decode_batch(sealed(front + HOSTILE[name]))


def test_a_header_key_that_is_not_text_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, None, (("key", b""),))]))
    batch[batch.index(b"key")] = 0xFF

    with pytest.raises(BatchError, match="UTF-8"):
        decode_batch(sealed(batch))


def test_a_compressed_bomb_is_refused() -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(5_000_000))], compression=Codec.ZSTD)
    assert len(bomb) < 1000

    assert decode_batch(bomb)
    with pytest.raises(WireError, match="limit"):
        decode_batch(bomb, max_decompressed=1_000_000)


def test_a_wrong_crc_is_noticed_unless_the_caller_knows_better() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, b"value")]))
    batch[17] ^= 1

    with pytest.raises(BatchError, match="CRC"):
        decode_batch(batch)
    assert decode_batch(batch, check_crc=False)[0].value == b"value"


def test_a_maximum_timestamp_can_be_given_to_a_batch() -> None:
    # given a batch from a client that never sets the field
    records = [Record(0, 500, b"k", b"v"), Record(1, 900, b"k", b"v"), Record(2, 700, b"k", b"v")]
    sent = bytearray(encode_batch(records))
    struct.pack_into(">q", sent, 35, -1)
    (batch,) = batches(sealed(sent))

    # when
    repaired = with_max_timestamp(batch, 900)

    # then
    assert isinstance(repaired, Batch)
    assert repaired.header.max_timestamp == 900
    assert decode_batch(repaired.data) == records
    assert list(batches(repaired.data)), "its CRC is right"


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
