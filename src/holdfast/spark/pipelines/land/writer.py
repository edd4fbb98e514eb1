"""Lands one batch: skips records that are in the table already, writes the rest, and commits all of it in one entry."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.dedup import remaining
from holdfast.spark.pipelines.errors import DataLoss, Unwritable
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import Entry
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.types import TopicPartition

logger = logging.getLogger("holdfast.spark")

Write = Callable[[Sequence[OffsetRange]], Sequence[DataFile]]
"""Writes the records of these ranges to complete files."""


@dataclass(slots=True)
class LandResult:
    """The result of a batch."""

    rows: int = 0
    files: int = 0
    partitions: int = 0
    read: int = 0
    """Offsets in the ranges of the batch."""
    entered: int = 0
    """Of these, the ones that it has committed to the table."""
    conflicts: int = 0
    """How often another writer committed first, so that the batch had to be compared with the table again."""
    lost: list[OffsetRange] = field(default_factory=list)

    @property
    def already(self) -> int:
        """Offsets that were in the table before, by another writer or an earlier attempt."""
        return self.read - self.entered


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of a range, which no entry of the log lists yet."""

    range: OffsetRange
    files: tuple[DataFile, ...]


class TableWriter:
    """One writer of a table. It knows the end of each partition from the last entry that it has read or written."""

    def __init__(self, log: DeltaLog, files: TableFiles, writer: str, *, fail_on_data_loss: bool = True) -> None:
        self._log = log
        self._files = files
        self._writer = writer
        self._fail_on_data_loss = fail_on_data_loss

    def land(self, ranges: Sequence[OffsetRange], write: Write) -> LandResult:
        """When it returns, all records of the ranges are in the table, by this writer or another."""
        pending = [one for one in ranges if one.start < one.end]
        landed = LandResult(read=sum(one.end - one.start for one in pending))
        written: dict[TopicPartition, _Written] = {}
        try:
            while pending:
                pending, lost = self._remaining(pending)
                self._write_missing(pending, written, write)
                files = [file for one in pending for file in written[one.where].files]
                if not pending or self._commit(pending, files, lost, landed):
                    break
                landed.conflicts += 1
        except OSError as error:
            raise Unwritable.because(str(self._log.location), error) from error
        return landed

    # -- remaining ranges ----------------------------------------------------------------------------------------------

    def _remaining(self, ranges: Sequence[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
        """The parts of the ranges that are not in the table, and the gaps before them, which are lost."""
        ends = self._log.ends(one.where for one in ranges)
        if any(ends[one.where] != one.start for one in ranges):
            self._log.refresh()  # other writers may have landed these partitions before
            ends = self._log.ends(one.where for one in ranges)
        pending, lost = [], []
        for one in ranges:
            end = ends[one.where]
            found = remaining(one, one.start if end is None else end)
            if found.gap is not None:
                self._report_gap(one, found.gap)
                lost.append(OffsetRange(*one.where, *found.gap))
            if found.rest is not None:
                pending.append(found.rest)
        return pending, lost

    def _report_gap(self, wanted: OffsetRange, lost: tuple[int, int]) -> None:
        """Raises DataLoss unless the user chose to continue."""
        first, end = lost
        what = f"{wanted.topic}-{wanted.partition} is landed up to {first}, and the batch begins at {end}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: the records between were deleted, or read by a member of the group that does not land them. "
                f"Reset the group's offset to {first} and start with a new checkpoint; or continue with the available "
                "records by the option failOnDataLoss=false"
            )
        logger.warning("%s: continuing, with the gap in the log of the table (failOnDataLoss=false)", what)

    # -- files and commits ---------------------------------------------------------------------------------------------

    def _write_missing(
        self, pending: Sequence[OffsetRange], written: dict[TopicPartition, _Written], write: Write
    ) -> None:
        """Writes the ranges that have no files yet. After a conflict, most partitions still have theirs."""
        wanted = {one.where: one for one in pending}
        for where in list(written):
            if written[where].range != wanted.get(where):
                self._discard(written.pop(where).files)
        missing = [one for one in pending if one.where not in written]
        if not missing:
            return
        files = write(missing)
        self._files.make_durable(files)
        for one in missing:
            own = sorted((file for file in files if file.where == one.where), key=lambda file: (file.date, file.first))
            assert all(one.start <= file.first < file.end <= one.end for file in own), (one, own)
            written[one.where] = _Written(one, tuple(own))

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Deletes files that no entry lists."""
        for file in files:
            with contextlib.suppress(OSError):  # compaction deletes them if this fails
                self._files.remove(file.path)

    def _commit(
        self,
        pending: Sequence[OffsetRange],
        files: Sequence[DataFile],
        lost: Sequence[OffsetRange],
        landed: LandResult,
    ) -> bool:
        """False if another writer was faster: it may have landed part of the ranges."""
        self._files.mark_used(files)
        ends = {one.where: one.end for one in pending}
        if not self._log.append(Entry(files, self._writer, time.time_ns() // 1_000_000, ends, lost)):
            return False
        landed.rows += sum(file.rows for file in files)
        landed.files += len(files)
        landed.partitions += len(pending)
        landed.entered += sum(one.end - one.start for one in pending)
        landed.lost += lost
        return True
