"""Lands one batch: skips records that are in the table already, writes the rest, and commits it to the manifests."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.dedup import remaining
from holdfast.spark.pipelines.errors import DataLoss, Unwritable
from holdfast.spark.pipelines.land.manifest import DataFile, Entry
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.types import TopicPartition

logger = logging.getLogger("holdfast.spark")

R = TypeVar("R")


class WrittenFile(NamedTuple):
    """A complete file on the device that no manifest lists yet."""

    where: TopicPartition
    file: DataFile


Write = Callable[[Mapping[TopicPartition, int]], Sequence[WrittenFile]]
"""Writes the batch's records of these partitions, from these offsets on."""


@dataclass(slots=True)
class LandResult:
    """The result of a batch."""

    rows: int = 0
    files: int = 0
    partitions: int = 0
    read: int = 0
    """Offsets in the ranges of the batch."""
    entered: int = 0
    """Of these, the ones that it has committed to the manifests."""
    lost: list[OffsetRange] = field(default_factory=list)

    @property
    def already(self) -> int:
        """Offsets that were in the table before, by another writer or an earlier attempt."""
        return self.read - self.entered

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.rows += entry.rows
            self.files += len(entry.files)
            self.partitions += 1
            self.entered += entry.end - entry.first


class TableWriter:
    """One writer of a table. It caches the end of each partition, and reads it again if the cached end does not
    match."""

    def __init__(
        self, store: ManifestStore, writer: str, *, fail_on_data_loss: bool = True, max_concurrent: int = 1
    ) -> None:
        """`max_concurrent` partitions are processed at the same time. Each waits for the device several times, and
        those that wait together use the same flushes."""
        self._max_concurrent = max_concurrent
        self._store = store
        self._writer = writer
        self._fail_on_data_loss = fail_on_data_loss
        self._ends: dict[TopicPartition, int] = {}
        self._synced: set[Path] = set()

    def land(self, ranges: Sequence[OffsetRange], write: Write) -> LandResult:
        """When it returns, all records of the ranges are in the table, by this writer or another."""
        pending = [one for one in ranges if one.start < one.end]
        landed = LandResult(read=sum(one.end - one.start for one in pending))
        try:
            while pending := self._remaining_ranges(pending, landed):
                written = write({one.where: one.start for one in pending})
                self._sync_directories(written)
                pending = self._commit_entries(pending, written, landed)
        except OSError as error:
            raise Unwritable.because(self._store.table, error) from error
        return landed

    def _map_partitions(self, do: Callable[[OffsetRange], R], ranges: Sequence[OffsetRange]) -> list[R]:
        """All calls have ended when this returns or raises."""
        if self._max_concurrent == 1 or len(ranges) == 1:
            return [do(one) for one in ranges]
        with ThreadPoolExecutor(self._max_concurrent) as threads:
            return list(threads.map(do, ranges))

    # -- remaining ranges ----------------------------------------------------------------------------------------------

    def _remaining_ranges(self, ranges: Sequence[OffsetRange], landed: LandResult) -> list[OffsetRange]:
        rests = self._map_partitions(lambda one: self._remaining(one, landed), ranges)
        return [rest for rest in rests if rest is not None]

    def _remaining(self, wanted: OffsetRange, landed: LandResult) -> OffsetRange | None:
        while True:
            found = remaining(wanted, self._end(wanted))
            if found.gap is None:
                return found.rest
            self._record_gap(wanted, found.gap, landed)

    def _end(self, wanted: OffsetRange) -> int:
        """The end of the partition in the table. A cached end that does not match the batch may be out of date."""
        known = self._ends.get(wanted.where)
        if known is None or known != wanted.start:
            known = self._store.end(wanted.where)
        if known is None:
            known = self._store.begin(wanted.where, wanted.start)
        self._ends[wanted.where] = known
        return known

    def _record_gap(self, wanted: OffsetRange, lost: tuple[int, int], landed: LandResult) -> None:
        """Raises DataLoss, or commits an entry which says that these records are missing."""
        topic, partition = wanted.where
        first, end = lost
        what = f"{topic}-{partition} is landed up to {first}, and the batch begins at {end}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: the records between were deleted, or read by a member of the group that does not land them. "
                f"Reset the group's offset to {first} and start with a new checkpoint; or continue with the available "
                "records by the option failOnDataLoss=false"
            )
        self._ends.pop(wanted.where)
        if self._store.append(Entry(topic, partition, first, end, (), self._writer, _now_ms(), is_lost=True)):
            landed.lost.append(OffsetRange(topic, partition, first, end))
            logger.warning("%s: continuing, with the gap in the manifest (failOnDataLoss=false)", what)

    # -- commits -------------------------------------------------------------------------------------------------------

    def _commit_entries(
        self, pending: Sequence[OffsetRange], written: Sequence[WrittenFile], landed: LandResult
    ) -> list[OffsetRange]:
        """Returns the ranges for which another writer was faster: part of them may be left to land."""
        entries = self._map_partitions(lambda one: self._commit_entry(one, written), pending)
        landed.add(entry for entry in entries if entry is not None)
        return [one for one, entry in zip(pending, entries, strict=True) if entry is None]

    def _commit_entry(self, one: OffsetRange, written: Sequence[WrittenFile]) -> Entry | None:
        """None if another writer was faster."""
        files = tuple(sorted((file for where, file in written if where == one.where), key=lambda file: file.first))
        assert all(one.start <= file.first < file.end <= one.end for file in files), (one, files)
        for file in files:
            # Compaction deletes old files that no entry lists; these may be old if the batch took long.
            self._store.disk.touch(self._store.table / file.path)
        entry = Entry(*one.where, one.start, one.end, files, self._writer, _now_ms())
        if not self._store.append(entry):
            self._ends.pop(one.where)
            for file in files:
                with contextlib.suppress(OSError):  # no entry lists them; compaction deletes them if this fails
                    self._store.disk.remove(self._store.table / file.path)
            return None
        self._ends[one.where] = one.end
        return entry

    def _sync_directories(self, written: Sequence[WrittenFile]) -> None:
        """The files are on the device already; this makes their names durable."""
        for directory in {(self._store.table / file.path).parent for _, file in written}:
            self._store.disk.sync_directory(directory)
            if directory not in self._synced:
                self._store.disk.sync_directory(directory.parent)
                self._store.disk.sync_directory(self._store.table)
                self._synced.add(directory)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
