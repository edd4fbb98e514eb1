"""Keyed records, and what must hold of a compacted log whatever was done to it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast.log.config import LogConfig
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.batch import Batch, batches, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import Record, decode_batch, encode_batch
from tests.unit.log.samples import NOW_MS, TINY, append, contents, open_log

HOUR_MS = 3_600_000
# Every closed segment counts as dirty enough; tombstones go an hour after the first compaction.
COMPACT = replace(TINY, segment_bytes=600, compacts=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=HOUR_MS)

Pair = tuple[bytes | None, bytes | None]


def keyed(
    pairs: Sequence[Pair],
    *,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = -1,
) -> list[Batch]:
    """One batch of these keys and values, as it comes out of a produce request."""
    records = [Record(n, timestamp + n, key, value, (("n", b"%d" % n),)) for n, (key, value) in enumerate(pairs)]
    epoch = 0 if producer_id >= 0 else -1
    data = encode_batch(
        records, compression=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return list(batches(bytearray(data)))


class History:
    """All that was ever appended: what a log without compaction would hold."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def put(self, log: PartitionLog, pairs: Sequence[Pair], now_ms: int = NOW_MS, codec: Codec = Codec.NONE) -> None:
        batch = keyed(pairs, timestamp=now_ms, codec=codec)
        records = decode_batch(batch[0].data)
        base_offset = append(log, batch, now_ms).base_offset
        assert base_offset == len(self.records)
        self.records += [record._replace(offset=base_offset + record.offset) for record in records]

    def state(self) -> dict[bytes | None, Record]:
        """The last record of each key, tombstones included."""
        return {record.key: record for record in self.records}


def found(log: PartitionLog) -> list[Record]:
    return [record for batch in contents(log) for record in decode_batch(batch)]


def values(log: PartitionLog) -> dict[bytes | None, bytes]:
    """What a reader ends up with who reads all and takes tombstones for deletions."""
    seen: dict[bytes | None, bytes] = {}
    for record in found(log):
        if record.value is None:
            seen.pop(record.key, None)
        else:
            seen[record.key] = record.value
    return seen


def check(log: PartitionLog, history: History) -> None:
    """No value is lost, nothing deleted is back, no record is altered or moved, every offset can be read from."""
    survivors = found(log)
    assert log.end_offset == len(history.records)
    assert [record.offset for record in survivors] == sorted({record.offset for record in survivors})
    assert all(record == history.records[record.offset] for record in survivors)
    offsets = {record.offset for record in survivors}
    of_key = {record.key for record in survivors}
    for last in history.state().values():
        if last.value is not None:
            assert last.offset in offsets, f"the last value of {last.key!r} is lost"
        else:
            assert last.offset in offsets or last.key not in of_key, f"{last.key!r} was deleted and is back"
    check_reads(log)


def check_reads(log: PartitionLog) -> None:
    """From each offset a read begins with the first batch that ends there or later."""
    headers = [parse_header(batch) for batch in contents(log)]
    ends = [header.last_offset for header in headers]
    assert all(after.base_offset > before.last_offset for before, after in itertools.pairwise(headers))
    for offset in range(log.start_offset, log.end_offset):
        region = log.read(offset, 1)
        assert region is not None, f"nothing to read at {offset}"
        assert parse_header(region.read()).last_offset == next(end for end in ends if end >= offset)


class Shape(NamedTuple):
    """What a directory holds."""

    logs: list[str]
    others: list[str]


def shape(log: PartitionLog) -> Shape:
    names = sorted(path.name for path in log.directory.iterdir())
    return Shape([name for name in names if name.endswith(".log")], [name for name in names if ".log." in name])


def config(**changes: object) -> LogConfig:
    return replace(COMPACT, **changes)  # type: ignore[arg-type]  # the names are checked when the config is made


def filled(path: Path, rounds: int = 20, keys: int = 4) -> tuple[PartitionLog, History]:
    """A log of several segments in which each key was written once a round."""
    log, history = open_log(path / "t-0", COMPACT), History()
    for number in range(rounds):
        history.put(log, [(b"key-%d" % key, b"value %d of %d" % (number, key)) for key in range(keys)])
    assert log.segment_count > 4
    return log, history


def reopened(log: PartitionLog) -> PartitionLog:
    log.close()
    return open_log(log.directory, log.config, clean=True, first_dirty_offset=log.first_dirty_offset)


def copy(log: PartitionLog, target: Path) -> Path:
    """The files as a kill would leave them."""
    target.mkdir()
    for path in log.directory.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target
