"""The format of versions: which runs are the totals of a partition up to an offset."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from holdfast.spark.pipelines import json_files
from holdfast.spark.pipelines.json_files import decode_json, encode_json, name_of, parse_or_damaged
from holdfast.types import TopicPartition

WHAT: Final = "version of a state"


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file that never changes, and whose name is never used again."""

    name: str
    rows: int
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Version:
    topic: str
    partition: int
    first: int
    """The end of the previous version."""
    end: int
    runs: tuple[RunFile, ...] = ()
    """The newest first."""
    writer: str = ""
    at_ms: int = 0
    is_lost: bool = False
    """The records from `first` on were deleted before they could be read, and the user chose to continue."""
    dropped_before_us: int | None = None
    """Windows that begin before this time are dropped, though runs may still have them. None: none are dropped."""

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return name_of(self.first)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.runs)


def number_of(name: str) -> int:
    return json_files.number_of(name, WHAT)


def encode_version(version: Version) -> bytes:
    return encode_json(asdict(version))


def decode_version(content: bytes, where: TopicPartition, shown: str) -> Version:
    """Raises Damaged or TooNew, which name the file as `shown`."""
    fields = decode_json(content, shown, WHAT)

    def parse() -> Version:
        version = Version(
            str(fields["topic"]),
            int(fields["partition"]),
            int(fields["first"]),
            int(fields["end"]),
            tuple(run_file(one) for one in fields["runs"]),
            str(fields["writer"]),
            int(fields["at_ms"]),
            bool(fields["is_lost"]),
            None if (dropped := fields.get("dropped_before_us")) is None else int(dropped),
        )
        belongs = version.where == where and version.name == PurePosixPath(shown).name
        if not belongs or version.first >= version.end:
            raise ValueError("it is not where it belongs")
        return version

    return parse_or_damaged(shown, parse, WHAT)


def run_file(fields: dict[str, Any]) -> RunFile:
    run = RunFile(str(fields["name"]), int(fields["rows"]), int(fields["size_bytes"]), int(fields["crc32c"]))
    if PurePosixPath(run.name).name != run.name:
        raise ValueError(f"{run.name} is outside of the state")
    return run
