"""Where a state can be: a directory, or an object store. At each step a process may die, or others come in between."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from obstore.store import MemoryStore

from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import LocalFiles, S3Files, SharedFiles
from tests.support.s3_emulator import S3Emulator

Step = Callable[[str, str], None]
"""Gets what is done next, and to which path."""


def unwatched(_what: str, _path: str) -> None:
    """Nothing happens."""


class Died(BaseException):
    """The process was killed here. No `except Exception` of the product may survive it."""


class Mortal:
    """A step: dies before the one with that number; counts them from 0."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.steps: list[tuple[str, str]] = []
        self._dies_at = dies_at

    def __call__(self, what: str, path: str) -> None:
        if len(self.steps) == self._dies_at:
            if what == "sync":  # what was written may be on the device in part
                Path(path).write_bytes(Path(path).read_bytes()[:7])
            raise Died
        self.steps.append((what, path.rpartition("/")[2]))


class Place(ABC):
    location: Location

    @abstractmethod
    def files(self, step: Step = unwatched, *, with_reads: bool = False) -> SharedFiles:
        """As one process has them. `step` is called before each change, or before each read as well."""

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def later(self, seconds: float) -> None:
        """All that is there is so much older."""

    def names(self, pattern: str) -> list[str]:
        return sorted(name for name in self._names() if fnmatch(name, pattern))

    def read(self, name: str) -> bytes:
        content = self.files().read(name)
        assert content is not None
        return content

    @abstractmethod
    def overwrite(self, name: str, content: bytes) -> bytes:
        """Returns what was there before."""

    def delete(self, name: str) -> None:
        self.files().remove(name)


class WatchedDisk(Disk):
    def __init__(self, step: Step, with_reads: bool) -> None:
        self._watch = step
        self._read_watch = step if with_reads else unwatched

    def names(self, directory: Path) -> list[str]:
        self._read_watch("list", str(directory))
        return super().names(directory)

    def modified_s(self, directory: Path) -> dict[str, float]:
        self._read_watch("list", str(directory))
        return super().modified_s(directory)

    def read(self, path: Path) -> bytes | None:
        self._read_watch("read", str(path))
        return super().read(path)

    def _step(self, what: str, path: Path) -> None:
        self._watch(what, str(path))


class ForgetfulNfs(Disk):
    """The server makes each link, its answer is lost, and what it says when it is asked again is that the name is
    there."""

    def _link(self, unfinished: Path, path: Path) -> bool:
        super()._link(unfinished, path)
        return super()._link(unfinished, path)


class DiskPlace(Place):
    def __init__(self, directory: Path) -> None:
        self.location = Location.parse(directory, "state")

    def files(self, step: Step = unwatched, *, with_reads: bool = False) -> SharedFiles:
        return LocalFiles(self.location.path, WatchedDisk(step, with_reads))

    def _names(self) -> list[str]:
        root = self.location.path
        return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]

    def later(self, seconds: float) -> None:
        for name in self._names():
            path = self.location.path / name
            made_s = path.stat().st_mtime - seconds
            os.utime(path, (made_s, made_s))

    def overwrite(self, name: str, content: bytes) -> bytes:
        before = self.read(name)
        (self.location.path / name).write_bytes(content)
        return before


class WatchedS3Files(S3Files):
    def __init__(self, location: Location, step: Step, with_reads: bool, ages_s: dict[str, float]) -> None:
        super().__init__(location)
        self._watch = step
        self._with_reads = with_reads
        self._ages_s = ages_s

    def modified_s(self, directory: str) -> dict[str, float]:
        found = super().modified_s(directory)
        return {name: at_s - self._ages_s.get(f"{directory}/{name}", 0.0) for name, at_s in found.items()}

    def _step(self, what: str, name: str) -> None:
        if self._with_reads or what in ("create", "write", "remove"):
            self._watch(what, name)


class StorePlace(Place):
    """A location whose store is an S3, or something like it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._ages_s: dict[str, float] = {}
        """How much older an object is than its store says."""

    def files(self, step: Step = unwatched, *, with_reads: bool = False) -> SharedFiles:
        return WatchedS3Files(self.location, step, with_reads, self._ages_s)

    def _names(self) -> list[str]:
        return [one["path"] for chunk in self.location.store.list() for one in chunk]

    def later(self, seconds: float) -> None:
        for name in self._names():
            self._ages_s[name] = self._ages_s.get(name, 0.0) + seconds

    def overwrite(self, name: str, content: bytes) -> bytes:
        before = self.read(name)
        self.location.store.put(name, content)
        return before


def s3_place(s3: S3Emulator) -> StorePlace:
    return StorePlace(Location.parse(f"s3://{s3.new_bucket()}/state", "state", s3.options))


def memory_place() -> StorePlace:
    """Quick, for many runs. It has the same conditional writes as S3."""
    location = Location("s3://memory/state")
    store: Any = MemoryStore()
    vars(location)["store"] = store  # a cached property
    return StorePlace(location)
