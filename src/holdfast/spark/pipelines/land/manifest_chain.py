"""The rules of a chain of manifest entries. Pure functions, without file access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.land.manifest import DataFile, Entry, Replaced, Snapshot
from holdfast.types import TopicPartition


class BrokenChain(HoldfastError):
    """An entry does not begin where the one before it ends."""

    FATAL = True


@dataclass(frozen=True, slots=True)
class Chain:
    """The content of one partition in the table."""

    where: TopicPartition
    first: int
    end: int
    files: tuple[DataFile, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    replaced: tuple[Replaced, ...] = ()
    entries: int = 0
    """Number of entries after the snapshot."""
    generation: int = 0
    """The generation of the snapshot that it begins with; 0 if there is none."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


def build_chain(where: TopicPartition, first: int, snapshot: Snapshot | None, entries: Sequence[Entry]) -> Chain:
    """The snapshot, or the beginning if there is none, and the entries after it. Raises BrokenChain."""
    base = Chain(where, first, first)
    if snapshot is not None:
        base = Chain(
            where,
            snapshot.first,
            snapshot.end,
            snapshot.files,
            snapshot.lost,
            snapshot.replaced,
            generation=snapshot.generation,
        )
    end, files, lost = base.end, list(base.files), list(base.lost)
    for entry in sorted(entries, key=lambda one: one.first):
        if entry.first != end:
            raise BrokenChain(
                f"the manifest of {where[0]}-{where[1]} ends at {end}, and its next entry begins at {entry.first}: an "
                "entry has been deleted or put there by hand. Put it back; nothing was changed"
            )
        end = entry.end
        files += entry.files
        if entry.is_lost:
            lost.append((entry.first, entry.end))
    return Chain(where, base.first, end, tuple(files), tuple(lost), base.replaced, len(entries), base.generation)
