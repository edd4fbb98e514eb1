"""The format of manifests: entries of a partition, and snapshots that replace many entries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from holdfast.spark.pipelines import json_files
from holdfast.spark.pipelines.json_files import decode_json, encode_json, name_of, parse_or_damaged
from holdfast.types import TopicPartition

WHAT: Final = "manifest"


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    """Relative to the directory of the table."""
    date: str
    first: int
    end: int
    """The offset after the last record. The ranges of files with different dates may overlap; their records do not."""
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The records of one partition that one batch has landed."""

    topic: str
    partition: int
    first: int
    end: int
    files: tuple[DataFile, ...]
    writer: str
    at_ms: int
    is_lost: bool = False
    """These records were deleted before they could be read, and the user chose to continue (failOnDataLoss=false)."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def name(self) -> str:
        return name_of(self.first)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file that is not in the table any more; current readers may still need it for a while."""

    path: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Replaces all entries from the first one up to `end`."""

    topic: str
    partition: int
    generation: int
    first: int
    end: int
    files: tuple[DataFile, ...]
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges that were deleted before they could be read."""
    replaced: tuple[Replaced, ...] = field(default=())

    @property
    def name(self) -> str:
        return name_of(self.generation)


def number_of(name: str) -> int:
    """The first offset in an entry's name, or the generation in a snapshot's."""
    return json_files.number_of(name, WHAT)


def encode(what: Entry | Snapshot) -> bytes:
    fields = asdict(what)
    if isinstance(what, Entry):
        fields["rows"] = what.rows  # for people and other programs
    return encode_json(fields)


def decode_entry(content: bytes, where: TopicPartition, shown: str) -> Entry:
    """Raises Damaged or TooNew, which name the file as `shown`."""
    fields = decode_json(content, shown, WHAT)

    def parse() -> Entry:
        files = tuple(_file(one) for one in fields["files"])
        entry = Entry(
            str(fields["topic"]),
            int(fields["partition"]),
            int(fields["first"]),
            int(fields["end"]),
            files,
            str(fields["writer"]),
            int(fields["at_ms"]),
            bool(fields["is_lost"]),
        )
        fits = entry.first < entry.end and all(entry.first <= one.first < one.end <= entry.end for one in files)
        if not fits or (entry.topic, entry.partition) != where or entry.name != PurePosixPath(shown).name:
            raise ValueError("it is not where it belongs")
        return entry

    return parse_or_damaged(shown, parse, "entry of a manifest")


def decode_snapshot(content: bytes, where: TopicPartition, shown: str) -> Snapshot:
    fields = decode_json(content, shown, WHAT)

    def parse() -> Snapshot:
        snapshot = Snapshot(
            str(fields["topic"]),
            int(fields["partition"]),
            int(fields["generation"]),
            int(fields["first"]),
            int(fields["end"]),
            tuple(_file(one) for one in fields["files"]),
            tuple((int(first), int(end)) for first, end in fields["lost"]),
            tuple(Replaced(_inside(one["path"]), int(one["at_ms"])) for one in fields["replaced"]),
        )
        if (snapshot.topic, snapshot.partition) != where or snapshot.name != PurePosixPath(shown).name:
            raise ValueError("it is not where it belongs")
        return snapshot

    return parse_or_damaged(shown, parse, "snapshot of a manifest")


def _file(fields: dict[str, Any]) -> DataFile:
    return DataFile(
        _inside(fields["path"]),
        str(fields["date"]),
        int(fields["first"]),
        int(fields["end"]),
        int(fields["rows"]),
        int(fields["size_bytes"]),
    )


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{path} is outside of the table")
    return path
