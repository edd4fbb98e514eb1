"""The manifests of a table on its disk.

    _manifests/<topic>/<partition>/beginning.json
                                   entries/<first>.json
                                   snapshots/<generation>.json

Nothing is ever written over. The snapshot with the highest generation counts, and the entries from its end on; what
stands before that is about to be deleted, and read by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines.disk import Disk
from holdfast.spark.pipelines.entries import Beginning, decode_beginning, encode_beginning
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.land.chain import Chain, chained
from holdfast.spark.pipelines.land.manifest import (
    WHAT,
    Entry,
    Snapshot,
    decode_entry,
    decode_snapshot,
    encode,
    number_of,
)

MANIFESTS: Final = "_manifests"
"""Spark and others do not look into directories that begin with an underscore."""
_ATTEMPTS: Final = 10
"""A compaction takes away what is being read at most once in its run, and runs take longer than reads."""

T = TypeVar("T")


class _Gone(Exception):
    """Somebody has compacted what was being read: read again."""


class ManifestStore:
    def __init__(self, table: Path, disk: Disk | None = None) -> None:
        self.table = table
        self.disk = disk or Disk()
        self._ends: dict[tuple[Where, int], int] = {}
        """Of snapshots, by generation: they do not change."""

    # -- what there is -------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return self.disk.directories(self.table / MANIFESTS)

    def partitions(self, topic: str) -> list[Where]:
        names = self.disk.names(self.table / MANIFESTS / topic)
        try:
            return [(topic, number) for number in sorted(map(int, names))]
        except ValueError as error:
            raise Damaged(f"{self.table / MANIFESTS / topic} has something in it that is no partition") from error

    def end(self, where: Where) -> int | None:
        """Where the next entry begins; None if the partition has never been begun."""
        return self._again(lambda: self._end(where))

    def chain(self, where: Where) -> Chain | None:
        """All of it, checked; None if the partition has never been begun."""
        return self._again(lambda: self._chain(where))

    # -- what is added -------------------------------------------------------------------------------------------------

    def begin(self, where: Where, first: int) -> int:
        """Where the partition begins in this table: there, or where somebody else has begun it."""
        path = self._home(where) / "beginning.json"
        if self.disk.create(path, encode_beginning(Beginning(*where, first))):
            return first
        content = self.disk.read(path)
        assert content is not None, "it is never deleted"
        return decode_beginning(content, where, str(path), WHAT).first

    def append(self, entry: Entry) -> bool:
        """False if somebody else went on from there."""
        where = entry.topic, entry.partition
        path = self._entries(where) / entry.name
        if not self.disk.create(path, encode(entry)):
            return False
        newest = self._again(lambda: self._newest(where))
        if newest is not None and entry.first < newest[1]:
            # Nobody reads this entry any more. Either a compaction has taken it in already; or its name was free only
            # because one had deleted it, which it does when its snapshot stands for these records.
            taken_in = self._again(lambda: self._takes_in(where, entry))
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
            self.disk.remove(path)  # its name was free because later ones have made it superfluous
            return False
        return True

    def forget(self, where: Where) -> None:
        """Delete the snapshots that are not the newest, and the entries that it stands for."""
        newest = self._again(lambda: self._newest(where))
        if newest is None:
            return
        for name in self.disk.names(self._snapshots(where)):
            if number_of(name) < newest[0]:
                self.disk.remove(self._snapshots(where) / name)
        for name in self.disk.names(self._entries(where)):
            if number_of(name) < newest[1]:
                self.disk.remove(self._entries(where) / name)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _end(self, where: Where) -> int | None:
        newest, names = self._newest_and_behind(where)
        if names:
            return self._entry(where, names[-1]).end
        return self._first(where) if newest is None else newest[1]

    def _chain(self, where: Where) -> Chain | None:
        first = self._first(where)
        if first is None:
            return None
        newest, names = self._newest_and_behind(where)
        snapshot = None if newest is None else self._snapshot(where, newest[0])
        return chained(where, first, snapshot, [self._entry(where, name) for name in names])

    def _newest_and_behind(self, where: Where) -> tuple[tuple[int, int] | None, list[str]]:
        """What `_newest` says, and the names of the entries behind it."""
        newest = self._newest(where)
        since = -1 if newest is None else newest[1]
        names = [name for name in self.disk.names(self._entries(where)) if number_of(name) >= since]
        if self._newest(where) != newest:
            raise _Gone  # entries may have been deleted before they were listed
        return newest, names

    def _first(self, where: Where) -> int | None:
        path = self._home(where) / "beginning.json"
        content = self.disk.read(path)
        return None if content is None else decode_beginning(content, where, str(path), WHAT).first

    def _entry(self, where: Where, name: str) -> Entry:
        path = self._entries(where) / name
        content = self.disk.read(path)
        if content is None:
            raise _Gone
        return decode_entry(content, where, str(path))

    def _snapshot(self, where: Where, generation: int) -> Snapshot:
        path = self._snapshots(where) / Snapshot(*where, generation, 0, 0, ()).name
        content = self.disk.read(path)
        if content is None:
            raise _Gone
        snapshot = decode_snapshot(content, where, str(path))
        self._ends[where, generation] = snapshot.end
        return snapshot

    def _takes_in(self, where: Where, entry: Entry) -> bool:
        newest = self._newest(where)
        assert newest is not None, "the newest snapshot is never deleted"
        snapshot = self._snapshot(where, newest[0])
        known = {one.path for one in snapshot.files} | {one.path for one in snapshot.replaced}
        return any(file.path in known for file in entry.files)

    def _newest(self, where: Where) -> tuple[int, int] | None:
        """The generation of the snapshot that counts, and its end."""
        generation = max(map(number_of, self.disk.names(self._snapshots(where))), default=None)
        if generation is None:
            return None
        if (where, generation) not in self._ends:
            self._snapshot(where, generation)
        return generation, self._ends[where, generation]

    def _again(self, look: Callable[[], T]) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return look()
            except _Gone:
                continue
        try:
            return look()
        except _Gone as error:
            raise Damaged(f"the manifests of {self.table} change faster than they can be read") from error

    def _home(self, where: Where) -> Path:
        return self.table / MANIFESTS / where[0] / str(where[1])

    def _entries(self, where: Where) -> Path:
        return self._home(where) / "entries"

    def _snapshots(self, where: Where) -> Path:
        return self._home(where) / "snapshots"
