"""The format of manifests: entries of a partition, and snapshots that stand for many of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines import entries
from holdfast.spark.pipelines.entries import decoded, encoded, name_of, parsed

WHAT: Final = "manifest"


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    """Below the directory of the table."""
    date: str
    first: int
    end: int
    """Behind the last record. Within the entry, files of different dates may overlap; records never do."""
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What one batch has landed of one partition."""

    topic: str
    partition: int
    first: int
    end: int
    files: tuple[DataFile, ...]
    writer: str
    at_ms: int
    is_lost: bool = False
    """These records were gone before they could be read, and the user was content to go on (failOnDataLoss=false)."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def name(self) -> str:
        return name_of(self.first)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file that is not in the table any more; who has begun to read may still need it for a while."""

    path: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Stands for all entries from the first one up to `end`."""

    topic: str
    partition: int
    generation: int
    first: int
    end: int
    files: tuple[DataFile, ...]
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges that were gone before they could be read."""
    replaced: tuple[Replaced, ...] = field(default=())

    @property
    def name(self) -> str:
        return name_of(self.generation)


def number_of(name: str) -> int:
    """The first offset that an entry's name says, or the generation that a snapshot's does."""
    return entries.number_of(name, WHAT)


def encode(what: Entry | Snapshot) -> bytes:
    said = asdict(what)
    if isinstance(what, Entry):
        said["rows"] = what.rows  # for people and other programs that read it
    return encoded(said)


def decode_entry(content: bytes, where: Where, shown: str) -> Entry:
    """Raises Damaged or TooNew, which name the file as `shown`."""
    said = decoded(content, shown, WHAT)

    def parse() -> Entry:
        files = tuple(_file(one) for one in said["files"])
        entry = Entry(
            str(said["topic"]),
            int(said["partition"]),
            int(said["first"]),
            int(said["end"]),
            files,
            str(said["writer"]),
            int(said["at_ms"]),
            bool(said["is_lost"]),
        )
        fits = entry.first < entry.end and all(entry.first <= one.first < one.end <= entry.end for one in files)
        if not fits or (entry.topic, entry.partition) != where or entry.name != PurePosixPath(shown).name:
            raise ValueError("it is not where it belongs")
        return entry

    return parsed(shown, parse, "entry of a manifest")


def decode_snapshot(content: bytes, where: Where, shown: str) -> Snapshot:
    said = decoded(content, shown, WHAT)

    def parse() -> Snapshot:
        snapshot = Snapshot(
            str(said["topic"]),
            int(said["partition"]),
            int(said["generation"]),
            int(said["first"]),
            int(said["end"]),
            tuple(_file(one) for one in said["files"]),
            tuple((int(first), int(end)) for first, end in said["lost"]),
            tuple(Replaced(_inside(one["path"]), int(one["at_ms"])) for one in said["replaced"]),
        )
        if (snapshot.topic, snapshot.partition) != where or snapshot.name != PurePosixPath(shown).name:
            raise ValueError("it is not where it belongs")
        return snapshot

    return parsed(shown, parse, "snapshot of a manifest")


def _file(said: dict[str, Any]) -> DataFile:
    return DataFile(
        _inside(said["path"]),
        str(said["date"]),
        int(said["first"]),
        int(said["end"]),
        int(said["rows"]),
        int(said["size_bytes"]),
    )


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{path} is outside of the table")
    return path
