"""Batches and logs for the tests of the log."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.log.config import LogConfig
from holdfast.log.partition_log import PartitionLog
from holdfast.log.placing import Appended
from holdfast.wire.batch import Batch, batches
from holdfast.wire.compression import Codec
from holdfast.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000
# Small enough that a few batches make several segments with several index entries.
TINY = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def sample(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> list[Batch]:
    """One batch, as it comes out of a produce request."""
    records = [Record(n, timestamp + n, b"key", value) for n in range(count)]
    data = encode_batch(
        records,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    return list(batches(bytearray(data)))


def open_log(
    path: Path,
    config: LogConfig = TINY,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    first_dirty_offset: int = 0,
    now_ms: int = NOW_MS,
) -> PartitionLog:
    return PartitionLog.open(
        path,
        config,
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        first_dirty_offset=first_dirty_offset,
    )


def append(log: PartitionLog, batch: Sequence[Batch], now_ms: int = NOW_MS) -> Appended:
    return log.append(batch, leader_epoch=0, now_ms=now_ms)


def fill(log: PartitionLog, count: int) -> list[bytes]:
    """Append batches of one to three records; returns them as stored."""
    stored = []
    for number in range(count):
        batch = sample(1 + number % 3, timestamp=NOW_MS + 10 * number)
        append(log, batch)
        stored.append(bytes(batch[0].data))
    return stored


def contents(log: PartitionLog) -> list[bytes]:
    return list(log.batches_from(log.start_offset))
