"""The manifests of a table on its disk.

    _manifests/<topic>/<partition>/beginning.json
                                   entries/<first>.json
                                   snapshots/<generation>.json

Files are never overwritten. The snapshot with the highest generation is current, with the entries from its end on;
earlier entries will be deleted and are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.json_files import Beginning, decode_beginning, encode_beginning
from holdfast.spark.pipelines.land.manifest import (
    WHAT,
    Entry,
    Snapshot,
    decode_entry,
    decode_snapshot,
    encode,
    number_of,
)
from holdfast.spark.pipelines.land.manifest_chain import Chain, build_chain
from holdfast.types import TopicPartition

MANIFESTS: Final = "_manifests"
"""Spark and other readers ignore directories that begin with an underscore."""
_ATTEMPTS: Final = 10
"""A compaction deletes files that are being read at most once, and takes longer than a read."""

T = TypeVar("T")


class _Compacted(Exception):
    """A compaction has deleted files that were being read; they must be read again."""


class ManifestStore:
    def __init__(self, table: Path, disk: Disk | None = None) -> None:
        self.table = table
        self.disk = disk or Disk()
        self._ends: dict[tuple[TopicPartition, int], int] = {}
        """The ends of snapshots, by generation, which never change."""

    # -- reads ---------------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return self.disk.directories(self.table / MANIFESTS)

    def partitions(self, topic: str) -> list[TopicPartition]:
        names = self.disk.names(self.table / MANIFESTS / topic)
        try:
            return [(topic, number) for number in sorted(map(int, names))]
        except ValueError as error:
            raise Damaged(f"{self.table / MANIFESTS / topic} has something in it that is no partition") from error

    def end(self, where: TopicPartition) -> int | None:
        """The start of the next entry; None if the partition has no beginning yet."""
        return self._retry(lambda: self._end(where))

    def chain(self, where: TopicPartition) -> Chain | None:
        """The whole chain, checked; None if the partition has no beginning yet."""
        return self._retry(lambda: self._chain(where))

    # -- writes --------------------------------------------------------------------------------------------------------

    def begin(self, where: TopicPartition, first: int) -> int:
        """The beginning of the partition in this table: `first`, or that of the writer that created it."""
        path = self._partition_dir(where) / "beginning.json"
        if self.disk.create(path, encode_beginning(Beginning(*where, first))):
            return first
        content = self.disk.read(path)
        assert content is not None, "it is never deleted"
        return decode_beginning(content, where, str(path), WHAT).first

    def append(self, entry: Entry) -> bool:
        """False if another writer has committed an entry from there."""
        where = entry.topic, entry.partition
        path = self._entries(where) / entry.name
        if not self.disk.create(path, encode(entry)):
            return False
        newest = self._retry(lambda: self._newest(where))
        if newest is not None and entry.first < newest[1]:
            # This entry is no longer read. Either a compaction has already included it, or its name was free only
            # because a compaction had deleted an entry of that name after a snapshot had replaced it.
            taken_in = self._retry(lambda: self._includes(where, entry))
            self.disk.remove(path)
            return taken_in
        return True

    def publish(self, snapshot: Snapshot) -> bool:
        """False if another compaction was faster."""
        where = snapshot.topic, snapshot.partition
        path = self._snapshots(where) / snapshot.name
        if not self.disk.create(path, encode(snapshot)):
            return False
        generations = map(number_of, self.disk.names(path.parent))
        if snapshot.generation < max(generations):
            self.disk.remove(path)  # its name was free because later ones have superseded it
            return False
        return True

    def delete_superseded(self, where: TopicPartition) -> None:
        """Deletes all snapshots but the newest one, and the entries that it replaces."""
        newest = self._retry(lambda: self._newest(where))
        if newest is None:
            return
        for name in self.disk.names(self._snapshots(where)):
            if number_of(name) < newest[0]:
                self.disk.remove(self._snapshots(where) / name)
        for name in self.disk.names(self._entries(where)):
            if number_of(name) < newest[1]:
                self.disk.remove(self._entries(where) / name)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _end(self, where: TopicPartition) -> int | None:
        newest, names = self._newest_and_later_entries(where)
        if names:
            return self._entry(where, names[-1]).end
        return self._first(where) if newest is None else newest[1]

    def _chain(self, where: TopicPartition) -> Chain | None:
        first = self._first(where)
        if first is None:
            return None
        newest, names = self._newest_and_later_entries(where)
        snapshot = None if newest is None else self._snapshot(where, newest[0])
        return build_chain(where, first, snapshot, [self._entry(where, name) for name in names])

    def _newest_and_later_entries(self, where: TopicPartition) -> tuple[tuple[int, int] | None, list[str]]:
        """The result of `_newest`, and the names of the entries after it."""
        newest = self._newest(where)
        since = -1 if newest is None else newest[1]
        names = [name for name in self.disk.names(self._entries(where)) if number_of(name) >= since]
        if self._newest(where) != newest:
            raise _Compacted  # entries may have been deleted before they were listed
        return newest, names

    def _first(self, where: TopicPartition) -> int | None:
        path = self._partition_dir(where) / "beginning.json"
        content = self.disk.read(path)
        return None if content is None else decode_beginning(content, where, str(path), WHAT).first

    def _entry(self, where: TopicPartition, name: str) -> Entry:
        path = self._entries(where) / name
        content = self.disk.read(path)
        if content is None:
            raise _Compacted
        return decode_entry(content, where, str(path))

    def _snapshot(self, where: TopicPartition, generation: int) -> Snapshot:
        path = self._snapshots(where) / Snapshot(*where, generation, 0, 0, ()).name
        content = self.disk.read(path)
        if content is None:
            raise _Compacted
        snapshot = decode_snapshot(content, where, str(path))
        self._ends[where, generation] = snapshot.end
        return snapshot

    def _includes(self, where: TopicPartition, entry: Entry) -> bool:
        newest = self._newest(where)
        assert newest is not None, "the newest snapshot is never deleted"
        snapshot = self._snapshot(where, newest[0])
        known = {one.path for one in snapshot.files} | {one.path for one in snapshot.replaced}
        return any(file.path in known for file in entry.files)

    def _newest(self, where: TopicPartition) -> tuple[int, int] | None:
        """The generation of the current snapshot, and its end."""
        generation = max(map(number_of, self.disk.names(self._snapshots(where))), default=None)
        if generation is None:
            return None
        if (where, generation) not in self._ends:
            self._snapshot(where, generation)
        return generation, self._ends[where, generation]

    def _retry(self, look: Callable[[], T]) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return look()
            except _Compacted:
                continue
        try:
            return look()
        except _Compacted as error:
            raise Damaged(f"the manifests of {self.table} change faster than they can be read") from error

    def _partition_dir(self, where: TopicPartition) -> Path:
        return self.table / MANIFESTS / where[0] / str(where[1])

    def _entries(self, where: TopicPartition) -> Path:
        return self._partition_dir(where) / "entries"

    def _snapshots(self, where: TopicPartition) -> Path:
        return self._partition_dir(where) / "snapshots"
