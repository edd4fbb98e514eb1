"""Whole batches as Arrow columns: the same rows as from the decoder that takes one record after another."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import arrow, fetched_batches
from holdfast.spark.batch_headers import CorruptBatch, UnsupportedBatch, split_batches
from holdfast.spark.fetched_batches import AbortedTransaction, BatchDecoder
from holdfast.wire.batch import CRC_START, HEADER_SIZE, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import Record, decode_batch, encode_batch

TOPIC_PARTITION = ("orders", 3)
EVERYTHING = (0, 1 << 62)


def rows_of(
    data: bytes,
    start: int = EVERYTHING[0],
    end: int = EVERYTHING[1],
    *,
    aborted: Sequence[AbortedTransaction] = (),
    include_headers: bool = True,
    check_crcs: bool = True,
) -> list[dict[str, Any]]:
    decoder = BatchDecoder(TOPIC_PARTITION, start, end, include_headers=include_headers, check_crcs=check_crcs)
    found = []
    for columns, next_offset in decoder.decode(data, split_batches(data), aborted):
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow.schema(include_headers))
        batch.validate(full=True)
        found += batch.to_pylist()
        assert next_offset == (batch["offset"][-1].as_py() + 1 if len(batch) else start)
    return found


def row(record: Record, timestamp_type: int = 0) -> dict[str, Any]:
    """One record as Spark gets it."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": TOPIC_PARTITION[0],
        "partition": TOPIC_PARTITION[1],
        "offset": record.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record.timestamp),
        "timestampType": timestamp_type,
        "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
    }


def test_decoding_does_not_load_pandas() -> None:
    """Arrow loads it for some conversions. A Spark worker would then visit its objects after each task."""
    records = [Record(0, 0, None, b"a", ()), Record(1, 0, b"k", None, (("h", b"x"),))]
    code = f"""
import sys
from holdfast.spark.batch_headers import split_batches
from holdfast.spark.fetched_batches import BatchDecoder
data = {bytes(encode_batch(records))!r}
((columns, _),) = BatchDecoder(("orders", 3), 0, 9, include_headers=True).decode(data, split_batches(data))
assert len(columns[0]) == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- equal to the decoder of single records ----------------------------------------------------------------------------

# A draw of its own for each of hundreds of records would take seconds: one number decides about all of them.
_seeds = st.integers(0, 1 << 32)


def _batches(seed: int) -> list[bytes]:
    """Batches as a log holds them: offsets increase, with gaps where compaction took records out."""
    chance = random.Random(seed)
    offset = chance.randrange(1000)
    found = []
    for _ in range(chance.randint(1, 4)):
        template = _record(chance, offset)
        records = []
        for _ in range(chance.choice([1, 2, 5, 40, 200])):
            offset += chance.choice([1, 1, 1, chance.randint(1, 100)])
            one = _record(chance, offset) if chance.random() < 0.2 else template
            records.append(one._replace(offset=offset))
        found.append(
            encode_batch(
                records, compression=chance.choice(list(Codec)), log_append_time=chance.choice([False, False, True])
            )
        )
        offset += chance.choice([0, 0, 50])
    return found


def _record(chance: random.Random, offset: int) -> Record:
    def piece(most: int) -> bytes | None:
        size = chance.choice([0, 1, 100, chance.randint(0, most)])
        return None if chance.random() < 0.25 else chance.randbytes(size)

    names = ["", "a", "trace-id", "größe", "x" * 100]
    headers = tuple((chance.choice(names), piece(100)) for _ in range(chance.choice([0, 0, 1, 4])))
    timestamp = chance.choice([-1, 0, 100, 1_700_000_000_000, 1_700_000_000_000 + chance.randrange(100_000)])
    return Record(offset, timestamp, piece(70), piece(300), headers)


@given(_seeds, st.integers(0, 1500), st.integers(0, 3000), st.booleans())
def test_the_rows_are_those_of_single_records(seed: int, start: int, length: int, include_headers: bool) -> None:
    batches, end = _batches(seed), start + length
    expected = [
        row(record, timestamp_type=int(parse_header(batch).has_log_append_time))
        for batch in batches
        for record in decode_batch(batch)
        if start <= record.offset < end
    ]
    if not include_headers:
        for one in expected:
            del one["headers"]

    assert rows_of(b"".join(batches), start, end, include_headers=include_headers) == expected


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("sizes", ["equal", "changing", "different"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_any_sizes_are_found(monkeypatch: pytest.MonkeyPatch, sizes: str, chunk: int, codec: Codec) -> None:
    """Equally long ones are found together, others one by one; and neither may miss one where the sizes change."""
    monkeypatch.setattr(fetched_batches, "MAX_CHUNK_RECORDS", chunk)
    monkeypatch.setattr(fetched_batches, "MAX_CHUNK_BYTES", 10 * chunk)
    chance = random.Random(7)
    size: Callable[[int], int] = {
        "equal": lambda number: 100,
        "changing": lambda number: 60 + number // 400,
        "different": lambda number: chance.choice([0, 1, 50, 70, 300, 9000 if number % 100 == 0 else 5]),
    }[sizes]
    records = [Record(number, number // 3, None, chance.randbytes(size(number))) for number in range(3000)]
    data = b"".join(encode_batch(records[at : at + 1500], compression=codec) for at in (0, 1500))

    assert rows_of(data) == [row(record) for record in records]


def test_many_headers_are_read_like_few() -> None:
    few, many = (("a", b"1"), ("b", None)), tuple((f"name-{number}", b"%d" % number) for number in range(500))
    records = [Record(0, 0, b"k", b"v", few), Record(1, 0, b"k", b"v", many), Record(2, 0, b"k", b"v", few)]

    assert rows_of(encode_batch(records)) == [row(record) for record in records]


def test_a_header_name_that_is_no_text_is_shown_as_java_shows_it() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, b"", (("name", b"x"),))]))
    batch[batch.index(b"name")] = 0xFF
    batch[CRC_START - 4 : CRC_START] = struct.pack(">I", crc32c(bytes(batch[CRC_START:])))

    (found,) = rows_of(bytes(batch))

    assert found["headers"] == [{"key": "�ame", "value": b"x"}]


# -- what a broker sends -----------------------------------------------------------------------------------------------


def test_a_batch_that_is_cut_off_is_left_for_the_next_response() -> None:
    first = encode_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")])
    second = encode_batch([Record(2, 0, None, b"c")])

    for end in range(len(second)):
        data = first + second[:end]
        assert [one["offset"] for one in rows_of(data)] == [0, 1]
        assert split_batches(data).last_offset.tolist() == [1]
    assert [one["offset"] for one in rows_of(first + second)] == [0, 1, 2]


def _marker(offset: int, producer: int, kind: int) -> bytes:
    record = Record(offset, 0, struct.pack(">hh", 0, kind), b"\0" * 6)
    return encode_batch([record], producer_id=producer, producer_epoch=0, transactional=True, control=True)


def _written(offset: int, producer: int) -> bytes:
    return encode_batch(
        [Record(offset, 0, None, b"%d" % producer)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_aborted_records_and_markers_are_left_out() -> None:
    abort, commit = 0, 1
    data = b"".join(
        [
            _written(0, 7),
            _written(1, 8),
            _marker(2, 7, abort),
            _written(3, 7),
            _marker(4, 8, commit),
            encode_batch([Record(5, 0, None, b"plain")]),
            _marker(6, 7, commit),
            _written(7, 8),
            _marker(8, 8, abort),
        ]
    )
    aborted = [AbortedTransaction(7, 8), AbortedTransaction(0, 7)]

    assert [one["offset"] for one in rows_of(data, aborted=aborted)] == [1, 3, 5]
    assert [one["offset"] for one in rows_of(data)] == [0, 1, 3, 5, 7]  # the control: read_uncommitted
    assert [one["offset"] for one in rows_of(data, 1, 4, aborted=aborted)] == [1, 3]


def test_a_batch_that_compaction_emptied_has_no_rows() -> None:
    header = bytearray(encode_batch([Record(0, 0, None, b"a")])[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12)
    struct.pack_into(">i", header, 57, 0)
    struct.pack_into(">I", header, 17, crc32c(bytes(header[CRC_START:])))

    assert [one["offset"] for one in rows_of(bytes(header) + encode_batch([Record(5, 0, None, b"b")]))] == [5]


# -- bytes that are wrong ----------------------------------------------------------------------------------------------


def test_every_changed_byte_of_a_batch_is_noticed() -> None:
    batch = encode_batch([Record(number, 0, b"key", b"value") for number in range(3)])
    for at in range(CRC_START - 4, len(batch)):
        wrong = bytearray(batch)
        wrong[at] ^= 0x10
        with pytest.raises(CorruptBatch, match="CRC of the batch at offset 0"):
            rows_of(bytes(wrong))
    assert len(rows_of(batch)) == 3


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_message_format_is_left_to_librdkafka(magic: int) -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, b"a")]))
    batch[16] = magic
    with pytest.raises(UnsupportedBatch, match=f"message format v{magic}"):
        rows_of(bytes(batch))


@given(_seeds, _seeds)
def test_hostile_bytes_end_in_an_error_or_in_rows(seed: int, changes: int) -> None:
    """Never in another exception, nor in a column whose positions are outside of its bytes."""
    data, chance = bytearray(b"".join(_batches(seed))), random.Random(changes)
    for _ in range(chance.randint(1, 4)):
        at = (
            chance.randrange(min(len(data), HEADER_SIZE + 40)) if chance.random() < 0.5 else chance.randrange(len(data))
        )
        data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    try:
        found = rows_of(bytes(data), check_crcs=False)
    except (CorruptBatch, UnsupportedBatch):
        return
    except (OverflowError, ValueError) as error:
        assert "date value out of range" in str(error) or "timestamp" in str(error).lower()  # of Python's dates
        return
    assert len(found) <= len(data)


def test_a_length_of_gigabytes_is_refused_before_memory_is_taken() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, b"a" * 100)]))
    struct.pack_into(">i", batch, 57, 0x7FFFFFFF)

    with pytest.raises(UnsupportedBatch, match="a batch cannot have so many records"):
        rows_of(bytes(batch), check_crcs=False)
    struct.pack_into(">i", batch, 57, 1)
    batch[HEADER_SIZE : HEADER_SIZE + 5] = b"\xfe\xff\xff\xff\x0f"
    with pytest.raises(UnsupportedBatch, match="a record's length is not possible"):
        rows_of(bytes(batch), check_crcs=False)
    struct.pack_into(">i", batch, 57, 2)
    with pytest.raises(UnsupportedBatch, match="the records end in the middle of one"):
        rows_of(bytes(batch), check_crcs=False)
