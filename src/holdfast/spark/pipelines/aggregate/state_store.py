"""A state on the disk.

    settings.json
    topics/<topic>/<partition>/beginning.json
                               versions/<first>.json
                               runs/<first>-….arrow

Files are never overwritten. The version with the highest name is current, and complete by itself. Earlier ones are kept
for a while, for current readers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings, decode_settings, encode_settings
from holdfast.spark.pipelines.aggregate.errors import SettingsMismatch
from holdfast.spark.pipelines.aggregate.version import WHAT, Version, decode_version, encode_version, number_of
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.json_files import Beginning, decode_beginning, encode_beginning
from holdfast.types import TopicPartition

TOPICS: Final = "topics"
_ATTEMPTS: Final = 10
"""A version is deleted at the earliest after it has been superseded for the grace period."""


class StateStore:
    def __init__(self, state: Path, disk: Disk | None = None) -> None:
        self.state = state
        self.disk = disk or Disk()

    # -- reads ---------------------------------------------------------------------------------------------------------

    def settings(self) -> AggregateSettings | None:
        """None if the state does not exist yet."""
        path = self.state / "settings.json"
        content = self.disk.read(path)
        return None if content is None else decode_settings(content, str(path))

    def topics(self) -> list[str]:
        return self.disk.directories(self.state / TOPICS)

    def partitions(self, topic: str) -> list[TopicPartition]:
        names = self.disk.names(self.state / TOPICS / topic)
        try:
            return [(topic, number) for number in sorted(map(int, names))]
        except ValueError as error:
            raise Damaged(f"{self.state / TOPICS / topic} has something in it that is no partition") from error

    def newest(self, where: TopicPartition) -> Version | None:
        """The current version; None if the partition has no beginning yet."""
        for _ in range(_ATTEMPTS):
            names = self.disk.names(self._versions(where))
            if not names:
                return self._beginning(where)
            path = self._versions(where) / names[-1]
            number_of(path.name)
            content = self.disk.read(path)
            if content is not None:
                return decode_version(content, where, str(path))
        raise Damaged(f"the versions of {self._versions(where)} change faster than they can be read")

    def run_path(self, where: TopicPartition, name: str) -> Path:
        return self._partition_dir(where) / "runs" / name

    # -- writes --------------------------------------------------------------------------------------------------------

    def create_or_check_settings(self, settings: AggregateSettings) -> None:
        """Creates the state with these settings, or checks that it has them. Raises SettingsMismatch."""
        if self.disk.create(self.state / "settings.json", encode_settings(settings)):
            return
        there = self.settings()
        assert there is not None, "they are never deleted"
        difference = there.difference(settings)
        if difference is not None:
            raise SettingsMismatch(
                f"the state in {self.state} was created with other settings ({difference}): use these, or another "
                "path; nothing was changed"
            )

    def begin(self, where: TopicPartition, first: int) -> Version:
        """The beginning of the partition: `first`, or that of the writer that created it. It has no totals."""
        self.disk.create(self._partition_dir(where) / "beginning.json", encode_beginning(Beginning(*where, first)))
        beginning = self._beginning(where)
        assert beginning is not None, "it is never deleted"
        return beginning

    def append(self, version: Version) -> bool:
        """False if another writer has committed a version from there. Read the current version again in that case."""
        if self._is_behind(version):
            # The name may be free because this writer was paused until the version of that name was deleted.
            return False
        created = self.disk.create(self._versions(version.where) / version.name, encode_version(version))
        # If it is behind now, either another writer has continued from it, or it was too late. Reading again is correct
        # in both cases, and the file is harmless because the highest version is current.
        return created and not self._is_behind(version)

    def _is_behind(self, version: Version) -> bool:
        return any(number_of(name) > version.first for name in self.disk.names(self._versions(version.where)))

    # -- clean-up ------------------------------------------------------------------------------------------------------

    def delete_superseded(self, newest: Version, grace_s: float) -> int:
        """Deletes versions that have been superseded for the grace period, runs that no other version lists, and
        temporary files of writers that were killed. Returns the number of deleted runs.

        Among the remaining versions, the oldest one lists every older run that any of them lists, because a dropped run
        is never listed again. Therefore only that version is read. Runs that no version lists yet are young: they are
        touched right before they are committed, and a batch has the grace period between the two. The clock is the file
        system's, by the time of the newest version, because the clocks of machines may differ.
        """
        where = newest.where
        versions, runs = self._versions(where), self.run_path(where, "")
        there = self.disk.names(runs)  # before the versions, so that a run committed in between does not look unlisted
        now_s = self._mtime_s(versions / newest.name)
        if now_s == math.inf:
            return 0  # it was deleted by a writer far ahead: runs that it does not list may be current
        for directory in (runs, versions):
            self._remove_unfinished(directory, now_s - 2 * grace_s)
        # The version before the newest stays in any case: it is the fallback if a damaged one has to be deleted.
        before = [name for name in self.disk.names(versions) if number_of(name) < newest.first]
        old = [name for name in before if now_s - self._mtime_s(versions / name) >= grace_s]
        content = self.disk.read(versions / old[-1]) if old else None
        if content is None:
            return 0  # nothing to delete, or another clean-up is running
        oldest = decode_version(content, where, str(versions / old[-1]))
        listed = {run.name for run in (*oldest.runs, *newest.runs)}
        for name in old[:-1]:
            self.disk.remove(versions / name)
        unlisted = [one for one in there if one not in listed and now_s - self._mtime_s(runs / one) >= 2 * grace_s]
        for name in unlisted:
            self.disk.remove(runs / name)
        return len(unlisted)

    def _remove_unfinished(self, directory: Path, before_s: float) -> None:
        """Temporary files of writers that were killed. A live writer renames its file right after writing it."""
        for name in self.disk.unfinished(directory):
            if self._mtime_s(directory / name) <= before_s:
                self.disk.remove(directory / name)

    @staticmethod
    def _mtime_s(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def _beginning(self, where: TopicPartition) -> Version | None:
        path = self._partition_dir(where) / "beginning.json"
        content = self.disk.read(path)
        if content is None:
            return None
        first = decode_beginning(content, where, str(path), WHAT).first
        return Version(*where, first, first)

    def _partition_dir(self, where: TopicPartition) -> Path:
        return self.state / TOPICS / where[0] / str(where[1])

    def _versions(self, where: TopicPartition) -> Path:
        return self._partition_dir(where) / "versions"
