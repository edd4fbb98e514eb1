"""The format of versions: which runs are the totals of a partition up to an offset."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines import entries
from holdfast.spark.pipelines.entries import decoded, encoded, name_of, parsed

WHAT: Final = "version of a state"


@dataclass(frozen=True, slots=True)
class RunFile:
    """It never changes, and its name is never used again."""

    name: str
    rows: int
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Version:
    topic: str
    partition: int
    first: int
    """Where the version before ends."""
    end: int
    runs: tuple[RunFile, ...] = ()
    """The newest first."""
    writer: str = ""
    at_ms: int = 0
    is_lost: bool = False
    """The records from `first` on were gone before they could be read, and the user was content to go on."""
    dropped_before_us: int | None = None
    """Windows that begin before this are no more, though runs may still have them. None: all are there."""

    @property
    def where(self) -> Where:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return name_of(self.first)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.runs)


def number_of(name: str) -> int:
    return entries.number_of(name, WHAT)


def encode_version(version: Version) -> bytes:
    return encoded(asdict(version))


def decode_version(content: bytes, where: Where, shown: str) -> Version:
    """Raises Damaged or TooNew, which name the file as `shown`."""
    said = decoded(content, shown, WHAT)

    def parse() -> Version:
        version = Version(
            str(said["topic"]),
            int(said["partition"]),
            int(said["first"]),
            int(said["end"]),
            tuple(run_file(one) for one in said["runs"]),
            str(said["writer"]),
            int(said["at_ms"]),
            bool(said["is_lost"]),
            None if (dropped := said.get("dropped_before_us")) is None else int(dropped),
        )
        belongs = version.where == where and version.name == PurePosixPath(shown).name
        if not belongs or version.first >= version.end:
            raise ValueError("it is not where it belongs")
        return version

    return parsed(shown, parse, WHAT)


def run_file(said: dict[str, Any]) -> RunFile:
    run = RunFile(str(said["name"]), int(said["rows"]), int(said["size_bytes"]), int(said["crc32c"]))
    if PurePosixPath(run.name).name != run.name:
        raise ValueError(f"{run.name} is outside of the state")
    return run
