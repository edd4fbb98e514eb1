"""Lands one batch: cuts off what is in the table already, has the rest written, and enters it in the manifests."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.pipelines.due import due
from holdfast.spark.pipelines.errors import DataLoss, Unwritable
from holdfast.spark.pipelines.land.manifest import DataFile, Entry
from holdfast.spark.pipelines.land.store import ManifestStore

logger = logging.getLogger("holdfast.spark")

R = TypeVar("R")


class Written(NamedTuple):
    """A file that is whole and on the device, and that no manifest lists yet."""

    where: Where
    file: DataFile


Write = Callable[[Mapping[Where, int]], Sequence[Written]]
"""Writes the batch's records of these partitions, from these offsets on, and of no others."""


@dataclass(slots=True)
class Landed:
    """What became of a batch."""

    rows: int = 0
    files: int = 0
    partitions: int = 0
    read: int = 0
    """Offsets that the batch was to read."""
    entered: int = 0
    """Of these, those that it has entered in the manifests."""
    lost: list[OffsetRange] = field(default_factory=list)

    @property
    def already(self) -> int:
        """Offsets that were in the table before, by others or by an earlier attempt."""
        return self.read - self.entered

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.rows += entry.rows
            self.files += len(entry.files)
            self.partitions += 1
            self.entered += entry.end - entry.first


class Lander:
    """One writer of a table. It remembers how far each partition is, and looks again when that does not fit."""

    def __init__(self, store: ManifestStore, writer: str, *, fail_on_data_loss: bool = True, at_once: int = 1) -> None:
        """`at_once`: so many partitions are looked after at the same time. Each waits for the device several times,
        and those that wait together share its flushes."""
        self._at_once = at_once
        self._store = store
        self._writer = writer
        self._fail_on_data_loss = fail_on_data_loss
        self._ends: dict[Where, int] = {}
        self._synced: set[Path] = set()

    def land(self, ranges: Sequence[OffsetRange], write: Write) -> Landed:
        """When it returns, all of the ranges is in the table, by us or by others."""
        pending = [one for one in ranges if one.start < one.end]
        landed = Landed(read=sum(one.end - one.start for one in pending))
        try:
            while pending := self._left(pending, landed):
                written = write({one.where: one.start for one in pending})
                self._sync_directories(written)
                pending = self._enter_all(pending, written, landed)
        except OSError as error:
            raise Unwritable.because(self._store.table, error) from error
        return landed

    def _each(self, do: Callable[[OffsetRange], R], ranges: Sequence[OffsetRange]) -> list[R]:
        """All of them have ended when this returns or raises."""
        if self._at_once == 1 or len(ranges) == 1:
            return [do(one) for one in ranges]
        with ThreadPoolExecutor(self._at_once) as threads:
            return list(threads.map(do, ranges))

    # -- what is left to land ------------------------------------------------------------------------------------------

    def _left(self, ranges: Sequence[OffsetRange], landed: Landed) -> list[OffsetRange]:
        rests = self._each(lambda one: self._rest(one, landed), ranges)
        return [rest for rest in rests if rest is not None]

    def _rest(self, wanted: OffsetRange, landed: Landed) -> OffsetRange | None:
        while True:
            found = due(wanted, self._end(wanted))
            if found.lost is None:
                return found.rest
            self._lose(wanted, found.lost, landed)

    def _end(self, wanted: OffsetRange) -> int:
        """How far the table is. What is remembered counts as long as it fits; else others may have gone on."""
        known = self._ends.get(wanted.where)
        if known is None or known != wanted.start:
            known = self._store.end(wanted.where)
        if known is None:
            known = self._store.begin(wanted.where, wanted.start)
        self._ends[wanted.where] = known
        return known

    def _lose(self, wanted: OffsetRange, lost: tuple[int, int], landed: Landed) -> None:
        """Raises, or enters that these records are not in the table."""
        topic, partition = wanted.where
        first, end = lost
        what = f"{topic}-{partition} is landed up to {first}, and the batch begins at {end}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: the records between are gone, or were read by a member of the group that does not land them. "
                f"Set the group's offset back to {first} and start with a new checkpoint; or go on with what is there "
                "by the option failOnDataLoss=false"
            )
        self._ends.pop(wanted.where)
        if self._store.append(Entry(topic, partition, first, end, (), self._writer, _now_ms(), is_lost=True)):
            landed.lost.append(OffsetRange(topic, partition, first, end))
            logger.warning("%s: going on, with the gap in the manifest (failOnDataLoss=false)", what)

    # -- what is entered -----------------------------------------------------------------------------------------------

    def _enter_all(
        self, pending: Sequence[OffsetRange], written: Sequence[Written], landed: Landed
    ) -> list[OffsetRange]:
        """Returns those where somebody else was faster: part of them may be left to land."""
        entries = self._each(lambda one: self._enter(one, written), pending)
        landed.add(entry for entry in entries if entry is not None)
        return [one for one, entry in zip(pending, entries, strict=True) if entry is None]

    def _enter(self, one: OffsetRange, written: Sequence[Written]) -> Entry | None:
        """None if somebody else was faster."""
        files = tuple(sorted((file for where, file in written if where == one.where), key=lambda file: file.first))
        assert all(one.start <= file.first < file.end <= one.end for file in files), (one, files)
        for file in files:
            # A sweep leaves young files alone; these may have waited long for their batch to end.
            self._store.disk.touch(self._store.table / file.path)
        entry = Entry(*one.where, one.start, one.end, files, self._writer, _now_ms())
        if not self._store.append(entry):
            self._ends.pop(one.where)
            for file in files:
                with contextlib.suppress(OSError):  # nobody reads them; a sweep takes what stays
                    self._store.disk.remove(self._store.table / file.path)
            return None
        self._ends[one.where] = one.end
        return entry

    def _sync_directories(self, written: Sequence[Written]) -> None:
        """The files are on the device already; now their names."""
        for directory in {(self._store.table / file.path).parent for _, file in written}:
            self._store.disk.sync_directory(directory)
            if directory not in self._synced:
                self._store.disk.sync_directory(directory.parent)
                self._store.disk.sync_directory(self._store.table)
                self._synced.add(directory)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
