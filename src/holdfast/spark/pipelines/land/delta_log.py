"""The writer's side of a Delta table's log: the end of each partition, and appends that compare and set it.

An entry of the log has the next number as its name, and is created exclusively. A writer has read all entries before
the one that it creates, so no other writer can have advanced a partition in between without being noticed.

delta-rs could commit as well. Its commit reads the list of all files of the table, which takes 37 ms for 12,000 files
and grows with their number; it does not flush the entry to the device; and it does not prevent the version of an
application from going back (docs/decisions/0034-holdfast-writes-the-entries-of-the-delta-log.md).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from holdfast.spark.pipelines.errors import Damaged, Unwritable
from holdfast.spark.pipelines.land.delta_entry import Append, application_id, decode, encode, entry_name
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles, open_files
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    from deltalake import DeltaTable

logger = logging.getLogger("holdfast.spark")

_CHECKPOINT_TIMEOUT_S: Final = 60.0


class DeltaLog:
    def __init__(self, location: Location, files: SharedFiles | None = None) -> None:
        self.location = location
        self._files = files or open_files(location)
        self._version: int | None = None
        """The last entry that this writer has read; None before the table is open."""
        self._ends: dict[TopicPartition, int | None] = {}
        """The ends of partitions as of that entry, as far as they have been requested."""
        self._checkpoint: threading.Thread | None = None

    # -- the ends of partitions ----------------------------------------------------------------------------------------

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset up to which each partition is in the table; None if it has no record of the partition."""
        wanted = list(partitions)
        if self._version is None or any(where not in self._ends for where in wanted):
            self._load({*self._ends, *wanted})
        return {where: self._ends[where] for where in wanted}

    def refresh(self) -> None:
        """Reads the entries of other writers."""
        if self._version is None:
            return
        while (content := self._files.read(entry_name(self._version + 1))) is not None:
            seen = decode(content, f"{self.location}/{entry_name(self._version + 1)}")
            if seen.changes_table:
                self._load(self._ends)
                return
            self._ends.update((where, end) for where, end in seen.ends.items() if where in self._ends)
            self._version += 1

    def _load(self, partitions: Iterable[TopicPartition]) -> None:
        from holdfast.spark.pipelines.land.delta_table import create_table, open_table

        table = open_table(self.location) or create_table(self.location)
        self._use(table, partitions)

    def _use(self, table: DeltaTable, partitions: Iterable[TopicPartition]) -> None:
        self._ends = {where: table.transaction_version(application_id(where)) for where in partitions}
        self._version = table.version()

    # -- commits -------------------------------------------------------------------------------------------------------

    def append(self, what: Append) -> bool:
        """False if another writer has committed an entry since this one has read the log. Read it again then."""
        assert self._version is not None, "the ends of the partitions are known"
        number = self._version + 1
        if not self._files.create(entry_name(number), encode(what, uuid.uuid4().hex)):
            self._refresh_after(number)
            return False
        if self._files.read(entry_name(self._version)) is None:
            return self._is_in_table(number, what)
        self._version = number
        self._ends.update(what.ends)
        self._write_checkpoint_if_due(number)
        return True

    def _refresh_after(self, number: int) -> None:
        before = self._version
        self.refresh()
        if self._version == before:
            raise Damaged(
                f"{self.location}/{entry_name(number)} exists and cannot be read; nothing was changed. Read the table "
                "with another program to see whether it is damaged"
            )

    def _is_in_table(self, number: int, what: Append) -> bool:
        """The entry before this one was deleted, as old entries are after a checkpoint. Usually this entry is part of
        the table all the same. But if this writer was paused for days, the name was free because an earlier entry of
        this name was deleted, too. Readers start at a later checkpoint then, and do not see this entry."""
        from holdfast.spark.pipelines.land.delta_table import open_table

        table = open_table(self.location)
        if table is None:
            raise Unwritable(f"{self.location} was deleted while the query wrote to it; start the query again")
        self._use(table, self._ends)
        if table.version() == number:
            return True
        paths = {file.path for file in what.files}
        return any(uri.endswith(path) for uri in table.file_uris() for path in paths)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _write_checkpoint_if_due(self, number: int) -> None:
        """In a thread, because it takes time in proportion to the number of files, and no batch depends on it."""
        from holdfast.spark.pipelines.land.delta_table import CHECKPOINT_INTERVAL

        if number % CHECKPOINT_INTERVAL == 0 and (self._checkpoint is None or not self._checkpoint.is_alive()):
            self._checkpoint = threading.Thread(target=self._write_checkpoint, name="holdfast-checkpoint", daemon=True)
            self._checkpoint.start()

    def _write_checkpoint(self) -> None:
        from holdfast.spark.pipelines.land.delta_table import write_checkpoint

        try:
            write_checkpoint(self.location)
        except Unwritable as error:
            logger.warning("could not write a checkpoint of the table's log; a later one will do: %s", error)

    def close(self) -> None:
        """Waits for a checkpoint that is being written."""
        if self._checkpoint is not None:
            self._checkpoint.join(_CHECKPOINT_TIMEOUT_S)
