"""Batches with the keys of an earlier batch are compacted without decoding their records, with the same result."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.log import repeated_keys
from holdfast.log.compaction import Compacted
from holdfast.log.offset_map import OffsetMap
from holdfast.log.partition_log import PartitionLog
from holdfast.log.record_spans import RecordSpan, record_spans, unpack, value_span
from holdfast.log.repeated_keys import RepeatedKeys
from holdfast.wire.batch import BatchHeader, batches, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import Record, encode_batch, encoded_record
from tests.unit.log.keyed_logs import COMPACT, HOUR_MS, Pair
from tests.unit.log.samples import NOW_MS, append, open_log

pytestmark = pytest.mark.usefixtures("no_syncs")

KEYS = [[b"%s-%d" % (group, partition) for partition in range(5)] for group in (b"a", b"b", b"c")]


def batch_of(pairs: list[Pair], codec: Codec = Codec.NONE, producer_id: int = -1, sequence: int = -1) -> bytes:
    """As the group log writes them: all records have the timestamp of the batch."""
    records = [Record(number, NOW_MS, key, value, ()) for number, (key, value) in enumerate(pairs)]
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(
        records, compression=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def decoded(batch: bytes) -> tuple[bytes, BatchHeader, list[RecordSpan]]:
    header = parse_header(batch)
    records = unpack(batch, header)
    return records, header, record_spans(records, header)


def known(*batch: bytes) -> RepeatedKeys:
    """Every batch has been decoded twice."""
    repeated = RepeatedKeys()
    for one in batch:
        repeated.add(*decoded(one))
        repeated.add(*decoded(one))
    return repeated


def valued(keys: list[bytes], value: bytes) -> list[Pair]:
    return [(key, value) for key in keys]


# Recognition


def test_a_batch_with_the_same_keys_and_other_values_is_found() -> None:
    repeated = known(batch_of(valued(KEYS[0], b"one")), batch_of(valued(KEYS[1], b"one")))

    records, header, _ = decoded(batch_of(valued(KEYS[1], b"two")))

    assert repeated.find(records, header) is not None


@pytest.mark.parametrize(
    "pairs",
    [
        valued(KEYS[2], b"one"),
        valued(KEYS[0][::-1], b"one"),
        valued(KEYS[0], b"longer"),
        [*valued(KEYS[0][:4], b"one"), (KEYS[0][4], None)],
        valued(KEYS[0][:4], b"one"),
    ],
    ids=["other keys", "other order", "longer values", "a tombstone", "fewer records"],
)
def test_a_batch_that_differs_in_more_than_values_is_not_found(pairs: list[Pair]) -> None:
    repeated = known(batch_of(valued(KEYS[0], b"one")))

    records, header, _ = decoded(batch_of(pairs))

    assert repeated.find(records, header) is None


def test_the_same_records_under_a_header_that_does_not_fit_them_are_not_found() -> None:
    batch = batch_of(valued(KEYS[0], b"one"))
    repeated = known(batch)
    records, header, _ = decoded(batch)

    assert repeated.find(records, header._replace(last_offset_delta=3)) is None
    assert repeated.find(records, header) is not None, "the control"


def test_a_layout_is_made_when_a_batch_occurs_again() -> None:
    repeated = RepeatedKeys()
    batch = decoded(batch_of(valued(KEYS[0], b"one")))

    repeated.add(*batch)
    assert repeated.find(*batch[:2]) is None

    repeated.add(*batch)
    assert repeated.find(*batch[:2]) is not None


def test_records_with_timestamps_of_their_own_are_not_found() -> None:
    records = [Record(number, NOW_MS + number, key, b"one", ()) for number, key in enumerate(KEYS[0])]
    batch = encode_batch(records)

    assert known(batch).find(*decoded(batch)[:2]) is None


def test_the_number_and_the_bytes_of_layouts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (batch_of(valued(keys, b"one")) for keys in KEYS)
    size = len(decoded(first)[0])

    monkeypatch.setattr(repeated_keys, "MAX_LAYOUTS", 2)
    repeated = known(first, second, third)
    assert [repeated.find(*decoded(one)[:2]) is not None for one in (first, second, third)] == [True, True, False]

    monkeypatch.setattr(repeated_keys, "MAX_BYTES", size)
    repeated = known(first, second)
    assert [repeated.find(*decoded(one)[:2]) is not None for one in (first, second)] == [True, False]


def test_the_first_keys_of_many_batches_are_not_kept() -> None:
    repeated = RepeatedKeys()
    batches = [decoded(batch_of([(b"%06d" % number * 20_000, b""), *valued(KEYS[0], b"one")])) for number in range(20)]

    tracemalloc.start()
    try:
        for batch in batches:
            repeated.add(*batch)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 20_000, "a fraction of one key"


def test_a_layout_is_not_compared_with_bytes_from_other_positions() -> None:
    # given two batches of the same size whose values have other lengths
    keys = [b"key-%d" % number for number in range(4)]
    first = batch_of([(key, b"v" * length) for key, length in zip(keys, (30, 10, 10, 10), strict=True)])
    second = batch_of([(key, b"v" * length) for key, length in zip(keys, (10, 30, 10, 10), strict=True)])
    repeated = known(first, second)

    # when a third has what the first has besides its values, at the positions of the second
    records, header, spans = decoded(first)
    starts = [records[span.start : value_span(records, span)[0]] for span in spans]
    hidden = encoded_record(Record(1, NOW_MS, b"zz", b"v" * 13, ()), 0, NOW_MS)
    values = [b"v" * 10, b"v" * 8 + b"\x00" + hidden[:-1], b"v" * 10, b"v" * 10]
    third = b"".join(start + value + b"\x00" for start, value in zip(starts, values, strict=True))

    # then it is not taken for the first, because it has another key
    assert len(third) == len(records)
    assert [span.key for span in record_spans(third, header)] == [keys[0], b"zz", *keys[2:]]
    assert repeated.find(third, header) is None
    assert repeated.find(*decoded(second)[:2]) is not None, "the control"


def test_the_last_batch_of_a_layout_sets_the_offsets_of_its_keys() -> None:
    batch = batch_of(valued(KEYS[0], b"one"))
    repeated = known(batch)
    layout = repeated.find(*decoded(batch)[:2])
    assert layout is not None
    keys = OffsetMap(0, 1_000_000)
    keys.put(KEYS[0][4], 70)

    layout.last_base_offset = 50
    repeated.put_into(keys)

    assert [keys.last_offset(key) for key in KEYS[0]] == [50, 51, 52, 53, 70]
    assert layout.is_superseded(49)
    assert not layout.is_superseded(50)


# Compaction


def random_log(path: Path, seed: int) -> PartitionLog:
    draw = random.Random(seed)
    # A topic that is not compacted at first, because only such a topic takes records without a key.
    log = open_log(path / "t-0", replace(COMPACT, segment_bytes=draw.choice([2_000, 6_000]), compacts=False))
    sequence = 0
    for number in range(200):
        keys: list[bytes | None] = list(draw.choice(KEYS))
        if draw.random() < 0.1:
            draw.shuffle(keys)
        if draw.random() < 0.05:
            keys[draw.randrange(5)] = None
        value = None if draw.random() < 0.1 else b"%06d" % number
        producer = draw.random() < 0.2
        batch = batch_of(
            [(key, value) for key in keys],
            draw.choice([Codec.NONE, Codec.NONE, Codec.GZIP]),
            *((7, sequence) if producer else ()),
        )
        sequence += 5 * producer
        append(log, list(batches(bytearray(batch))))
    assert log.segment_count > 2
    log.config = replace(log.config, compacts=True)
    return log


def two_passes(log: PartitionLog) -> list[Compacted | None]:
    first = log.compact(NOW_MS)
    for number in range(60):
        append(log, list(batches(bytearray(batch_of(valued(KEYS[number % 2], b"%06d" % number))))))
    return [first, log.compact(NOW_MS + 2 * HOUR_MS)]


@pytest.mark.parametrize("seed", range(6))
def test_compaction_writes_the_same_files_as_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # given one log twice
    log = random_log(tmp_path, seed)
    log.close()
    shutil.copytree(log.directory, tmp_path / "copy" / "t-0")
    quick, slow = (open_log(path / "t-0", log.config, clean=True) for path in (tmp_path, tmp_path / "copy"))
    find, hits = RepeatedKeys.find, []

    def counted(repeated: RepeatedKeys, records: bytes, header: BatchHeader) -> repeated_keys.Layout | None:
        layout = find(repeated, records, header)
        hits.append(layout is not None)
        return layout

    # when
    monkeypatch.setattr(RepeatedKeys, "find", counted)
    done = two_passes(quick)
    monkeypatch.setattr(RepeatedKeys, "find", lambda *_: None)
    expected = two_passes(slow)

    # then
    assert sum(hits) > 100, "most batches repeat the keys of another"
    assert None not in done
    assert done == expected
    of_quick, of_slow = ({path.name: path.read_bytes() for path in one.directory.iterdir()} for one in (quick, slow))
    assert of_quick == of_slow
