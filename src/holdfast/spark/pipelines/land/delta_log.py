"""The writer's side of a Delta table's log: the end of each partition, and commits that compare and set it.

An entry of the log has the next number as its name, and is created exclusively. A writer has read all entries before
the one that it creates, so it has seen every partition that another writer has advanced, and every file that another
compaction has removed.

Holdfast writes its entries itself instead of using delta-rs, for the reasons in
docs/decisions/0034-holdfast-writes-the-entries-of-the-delta-log.md.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from holdfast.spark.pipelines.errors import Damaged, Unwritable
from holdfast.spark.pipelines.land.delta_entry import Entry, application_id, decode, encode, entry_name
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles, open_files
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    from deltalake import DeltaTable

logger = logging.getLogger("holdfast.spark")

_CHECKPOINT_TIMEOUT_S: Final = 60.0


class DeltaLog:
    """Old entries are deleted after a checkpoint, by the retention of the log. A writer that was paused until then may
    find a free name that is not the next one, and create an entry that nobody reads; or read such an entry of another
    writer. So the entry before is read afterwards: if it is still the same, then the ones after it were not deleted."""

    def __init__(self, location: Location, files: SharedFiles | None = None) -> None:
        self.location = location
        self._files = files or open_files(location)
        self._version: int | None = None
        """The last entry that this writer has read; None before the table is open."""
        self._last: bytes | None = None
        """The content of that entry; None if it was deleted already."""
        self._ends: dict[TopicPartition, int | None] = {}
        """The ends of partitions as of that entry, as far as they have been requested."""
        self.removed: set[str] | None = None
        """The files that other writers have removed since `open`; None if that is not known."""
        self._checkpoint: threading.Thread | None = None

    # -- the ends of partitions ----------------------------------------------------------------------------------------

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offset up to which each partition is in the table; None if it has no record of the partition."""
        wanted = list(partitions)
        if self._version is None or any(where not in self._ends for where in wanted):
            self._load({*self._ends, *wanted})
        return {where: self._ends[where] for where in wanted}

    def open(self) -> DeltaTable:
        """The table as of the last entry. Raises ConfigError if it does not exist."""
        from holdfast.spark.pipelines.land.delta_table import existing_table

        table = existing_table(self.location)
        self._use(table, self._ends)
        self.removed = set()
        return table

    def refresh(self) -> None:
        """Reads the entries of other writers. If it raises an error, the next call reads the same entries again."""
        if self._version is None:
            return
        version, last, seen = self._version, self._last, []
        while (content := self._files.read(entry_name(version + 1))) is not None:
            version, last = version + 1, content
            seen.append(decode(content, f"{self.location}/{entry_name(version)}"))
        if not self._is_unchanged():
            self._load(self._ends)
            return
        self._flush(self._version, version)
        if any(one.changes_table for one in seen):
            self._check_table()
        self._version, self._last = version, last
        for one in seen:
            self._ends.update((where, end) for where, end in one.ends.items() if where in self._ends)
            if self.removed is not None:
                self.removed |= one.removed

    def _flush(self, after: int, version: int) -> None:
        """The entries of this writer are flushed, and those of other programs perhaps not. If an earlier entry were
        lost by a power failure and a later one were not, then nobody could read the table."""
        if names := [entry_name(number) for number in range(after + 1, version + 1)]:
            self._files.flush(names)

    def _is_unchanged(self) -> bool:
        """Whether the last entry that was read has not been deleted since."""
        assert self._version is not None
        return self._last is not None and self._files.read(entry_name(self._version)) == self._last

    def _check_table(self) -> None:
        """Another program has changed the columns, the properties or the features of the table."""
        from holdfast.spark.pipelines.land.delta_table import open_table

        open_table(self.location)

    def _load(self, partitions: Iterable[TopicPartition]) -> None:
        from holdfast.spark.pipelines.land.delta_table import create_table, open_table

        self._use(open_table(self.location) or create_table(self.location), partitions)

    def _use(self, table: DeltaTable, partitions: Iterable[TopicPartition]) -> None:
        from holdfast.spark.pipelines.land.delta_table import check_table, listing

        opened = table.version()
        while True:
            version = table.version()
            self._last = self._files.read(entry_name(version))
            listing(self.location, table.update_incremental)
            if table.version() == version:  # so this was the last entry when it was read
                break
        if version > opened:
            self._flush(opened, version)
            check_table(table, self.location)
        self._version = version
        self._ends = {where: table.transaction_version(application_id(where)) for where in partitions}
        self.removed = None

    # -- commits -------------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> bool:
        """False if another writer has committed an entry since this one has read the log. It has read it then."""
        assert self._version is not None, "the ends of the partitions are known"
        number, content = self._version + 1, encode(entry, uuid.uuid4().hex)
        if not self._files.create(entry_name(number), content):
            self._refresh_after(number)
            return False
        if not self._is_unchanged():
            return self._is_in_table(entry)
        self._version, self._last = number, content
        self._ends.update(entry.ends)
        self._write_checkpoint_if_due(number)
        return True

    def _refresh_after(self, number: int) -> None:
        before = self._version
        self.refresh()
        if self._version == before:  # the entry was deleted before it was read
            self._load(self._ends)
        if self._version == before:
            raise Damaged(
                f"{self.location}/{entry_name(number)} exists and is not in the log; nothing was changed. Read the "
                "table with another program to see whether it is damaged"
            )

    def _is_in_table(self, entry: Entry) -> bool:
        """Whether the table has an entry that may have been created too late. It is not deleted if it was: readers
        start at a later checkpoint and do not see it, and the retention of the log deletes it.

        False does no harm if another writer has replaced the files meanwhile, because the ends are compared again.
        """
        from holdfast.spark.pipelines.land.delta_table import existing_table

        table = existing_table(self.location)
        self._use(table, self._ends)
        paths = {file.path for file in entry.added}
        return not paths.isdisjoint(table.get_add_actions(flatten=True)["path"].to_pylist())

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
