"""Tables without Spark: topics as lists of numbers, batches as Arrow, and a disk on which a process can die."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq

from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.land.manifest import DataFile, Entry
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.parquet_merge import merge_files
from holdfast.spark.pipelines.land.parquet_writer import write_rows
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge
from holdfast.spark.pipelines.land.table_reader import chains
from holdfast.spark.pipelines.land.writer import TableWriter, Write, WrittenFile
from holdfast.types import TopicPartition

DAY_MS = 86_400_000
A_DATE_MS = 1_794_787_200_000
"""2026-11-16."""
TOPIC = "numbers"

Row = tuple[str, int, int, bytes]
"""Topic, partition, offset, value."""


class Died(BaseException):
    """The process was killed here. No `except Exception` of the product may survive it."""


class MortalDisk(Disk):
    """Dies before the step with that number; counts them from 0."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.steps: list[tuple[str, str]] = []
        self._dies_at = dies_at

    def _step(self, what: str, path: Path) -> None:
        if len(self.steps) == self._dies_at:
            if what == "sync":  # what was written may be on the device in part
                path.write_bytes(path.read_bytes()[:7])
            raise Died
        self.steps.append((what, path.name))


class ForgetfulNfs(Disk):
    """The server makes each link, its answer is lost, and what it says when it is asked again is that the name is
    there."""

    def _link(self, unfinished: Path, path: Path) -> bool:
        super()._link(unfinished, path)
        return super()._link(unfinished, path)


def record_batch(of: Iterable[tuple[OffsetRange, int]], without: Iterable[int] = ()) -> pa.RecordBatch:
    """The records of the ranges, each range with the milliseconds of its records' time, as the source gives them."""
    rows = [
        {
            "key": None,
            "value": value_of(one.where, offset),
            "topic": one.topic,
            "partition": one.partition,
            "offset": offset,
            "timestamp": at_ms * 1000,
            "timestampType": 0,
        }
        for one, at_ms in of
        for offset in range(one.start, one.end)
        if offset not in without
    ]
    return pa.RecordBatch.from_pylist(rows, arrow.schema(False))


def value_of(where: TopicPartition, offset: int) -> bytes:
    return f"{where[0]}-{where[1]}@{offset}".encode()


def writing(table: Path, ranges: Sequence[OffsetRange], at_ms: int = A_DATE_MS, without: Iterable[int] = ()) -> Write:
    """What Spark's tasks do: write a batch of these ranges."""
    gone = frozenset(without)

    def write(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
        batches = iter([record_batch([(one, at_ms)], gone) for one in ranges])
        return list(written(write_rows(batches, str(table), floors)))

    return write


def written(reports: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
    for report in reports:
        for row in report.to_pylist():
            assert row.pop("problem") is None, row
            row.pop("errno")
            yield WrittenFile((row.pop("topic"), row.pop("partition")), DataFile(**row))


def land(
    table: Path,
    *ranges: tuple[int, int, int],
    disk: Disk | None = None,
    at_ms: int = A_DATE_MS,
    fail_on_data_loss: bool = True,
) -> None:
    """A new writer lands (partition, start, end) in one batch."""
    wanted = [OffsetRange(TOPIC, *one) for one in ranges]
    lander = TableWriter(ManifestStore(table, disk), "writer", fail_on_data_loss=fail_on_data_loss)
    lander.land(wanted, writing(table, wanted, at_ms))


def rows_of(table: Path) -> list[Row]:
    """All that the manifests list, as it stands in the files."""
    found: list[Row] = []
    for chain in chains(ManifestStore(table)):
        for file in chain.files:
            read = pq.read_table(table / file.path, partitioning=None)
            offsets = read.column("offset").to_pylist()
            assert (len(offsets), min(offsets), max(offsets) + 1) == (file.rows, file.first, file.end)
            found += [
                (chain.where[0], partition, offset, value)
                for partition, offset, value in zip(
                    read.column("partition").to_pylist(), offsets, read.column("value").to_pylist(), strict=True
                )
            ]
    return sorted(found)


def every(*ranges: tuple[int, int, int]) -> list[Row]:
    """Each record of (partition, start, end) once."""
    return sorted(
        (TOPIC, partition, offset, value_of((TOPIC, partition), offset))
        for partition, start, end in ranges
        for offset in range(start, end)
    )


def entry(first: int, end: int, *files: DataFile, is_lost: bool = False) -> Entry:
    return Entry(TOPIC, 0, first, end, files, "writer", 1, is_lost)


def compaction(
    table: Path, *, now_s: Callable[[], float], grace_s: float = 3600, disk: Disk | None = None
) -> Compaction:
    """With what Spark's tasks do, done here."""

    def merge_all(merges: Sequence[Merge]) -> list[DataFile]:
        return [merge_files(table, merge.files) for merge in merges]

    return Compaction(ManifestStore(table, disk), merge_all, grace_s=grace_s, now_s=now_s)


def data_files(table: Path) -> set[str]:
    return {path.relative_to(table).as_posix() for path in table.glob("topic=*/date=*/*.parquet")}
