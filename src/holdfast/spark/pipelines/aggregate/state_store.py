"""A state, in a shared directory or in an object store.

    settings.json
    topics/<topic>/<partition>/beginning.json
                               versions/<first>.json
                               runs/<first>-….arrow

Files are never overwritten. The version with the highest name is current, and complete by itself. Earlier ones are kept
for a while, for current readers.
"""

from __future__ import annotations

from typing import Final

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings, decode_settings, encode_settings
from holdfast.spark.pipelines.aggregate.errors import SettingsMismatch
from holdfast.spark.pipelines.aggregate.run_files import StoredRun
from holdfast.spark.pipelines.aggregate.version import WHAT, Version, decode_version, encode_version, number_of
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.json_files import Beginning, decode_beginning, encode_beginning
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles, open_files
from holdfast.types import TopicPartition

TOPICS: Final = "topics"
_SETTINGS: Final = "settings.json"
_BEGINNING: Final = "beginning.json"
_ATTEMPTS: Final = 10
"""A version is deleted at the earliest after it has been superseded for the grace period."""


class StateStore:
    def __init__(self, state: Location, files: SharedFiles | None = None) -> None:
        self.state = state
        self.files = files or open_files(state)

    # -- reads ---------------------------------------------------------------------------------------------------------

    def settings(self) -> AggregateSettings | None:
        """None if the state does not exist yet."""
        content = self.files.read(_SETTINGS)
        return None if content is None else decode_settings(content, self.files.shown(_SETTINGS))

    def topics(self) -> list[str]:
        return self.files.directories(TOPICS)

    def partitions(self, topic: str) -> list[TopicPartition]:
        names = self.files.names(f"{TOPICS}/{topic}")
        try:
            return [(topic, number) for number in sorted(map(int, names))]
        except ValueError as error:
            shown = self.files.shown(f"{TOPICS}/{topic}")
            raise Damaged(f"{shown} has something in it that is no partition") from error

    def newest(self, where: TopicPartition) -> Version | None:
        """The current version; None if the partition has no beginning yet."""
        for _ in range(_ATTEMPTS):
            names = self.files.names(_versions(where))
            if not names:
                return self._beginning(where)
            number_of(names[-1])
            version = self._read_version(where, names[-1])
            if version is not None:
                return version
        raise Damaged(f"the versions of {self.files.shown(_versions(where))} change faster than they can be read")

    def run(self, where: TopicPartition, name: str) -> StoredRun:
        return StoredRun(self.files, f"{_runs(where)}/{name}")

    # -- writes --------------------------------------------------------------------------------------------------------

    def create_or_check_settings(self, settings: AggregateSettings) -> None:
        """Creates the state with these settings, or checks that it has them. Raises SettingsMismatch."""
        if self.files.create(_SETTINGS, encode_settings(settings)):
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
        self.files.create(f"{_partition_dir(where)}/{_BEGINNING}", encode_beginning(Beginning(*where, first)))
        beginning = self._beginning(where)
        assert beginning is not None, "it is never deleted"
        return beginning

    def write_run(self, where: TopicPartition, name: str, content: bytes) -> None:
        self.files.write(f"{_runs(where)}/{name}", content)

    def refresh_run(self, where: TopicPartition, name: str) -> None:
        """Called right before a version that lists the run is appended. Raises FileNotFoundError if the run does not
        exist."""
        self.files.touch(f"{_runs(where)}/{name}")

    def append(self, version: Version) -> bool:
        """False if another writer has committed a version from there. Read the current version again in that case."""
        if self._is_behind(version):
            # The name may be free because this writer was paused until the version of that name was deleted.
            return False
        created = self.files.create(f"{_versions(version.where)}/{version.name}", encode_version(version))
        # If it is behind now, either another writer has continued from it, or it was too late. Reading again is correct
        # in both cases, and the file is harmless because the highest version is current.
        return created and not self._is_behind(version)

    def _is_behind(self, version: Version) -> bool:
        later = self.files.names(_versions(version.where), after=version.name)
        return any(number_of(name) > version.first for name in later)

    # -- clean-up ------------------------------------------------------------------------------------------------------

    def delete_superseded(self, newest: Version, grace_s: float) -> int:
        """Deletes versions that have been superseded for the grace period, runs that no other version lists, and
        temporary files of writers that were killed. Returns the number of deleted runs.

        Among the remaining versions, the oldest one lists every older run that any of them lists, because a dropped run
        is never listed again. Therefore only that version is read.

        A run that no version lists yet is not deleted while it can still be committed, no matter how long its batch
        takes. The clock stands still at the time of the newest version. A run that builds on this version or on a later
        one was written after it, and is not old by that clock. A run that builds on an earlier one cannot be committed,
        because the name of its version is taken. The clock is the one of the file system, because the clocks of
        machines may differ. The grace period covers its precision, and the differences between the servers of an object
        store.
        """
        where = newest.where
        versions, runs = _versions(where), _runs(where)
        there = self.files.modified_s(runs)  # before the versions: a run committed in between must not look unlisted
        written_s = self.files.modified_s(versions)
        now_s = written_s.get(newest.name)
        if now_s is None:
            return 0  # it was deleted by a writer far ahead: runs that it does not list may be current
        for directory in (runs, versions):
            self.files.remove_unfinished(directory, now_s - 2 * grace_s)
        # The version before the newest stays in any case: it is the fallback if a damaged one has to be deleted.
        old = sorted(name for name, at_s in written_s.items() if name < newest.name and now_s - at_s >= grace_s)
        oldest = self._read_version(where, old[-1]) if old else None
        if oldest is None:
            return 0  # nothing to delete, or another clean-up is running
        for name in old[:-1]:
            self.files.remove(f"{versions}/{name}")
        listed = {run.name for run in (*oldest.runs, *newest.runs)}
        unlisted = [name for name, at_s in there.items() if name not in listed and now_s - at_s >= 2 * grace_s]
        for name in unlisted:
            self.files.remove(f"{runs}/{name}")
        return len(unlisted)

    def _read_version(self, where: TopicPartition, name: str) -> Version | None:
        path = f"{_versions(where)}/{name}"
        content = self.files.read(path)
        return None if content is None else decode_version(content, where, self.files.shown(path))

    def _beginning(self, where: TopicPartition) -> Version | None:
        path = f"{_partition_dir(where)}/{_BEGINNING}"
        content = self.files.read(path)
        if content is None:
            return None
        first = decode_beginning(content, where, self.files.shown(path), WHAT).first
        return Version(*where, first, first)


def _partition_dir(where: TopicPartition) -> str:
    return f"{TOPICS}/{where[0]}/{where[1]}"


def _versions(where: TopicPartition) -> str:
    return f"{_partition_dir(where)}/versions"


def _runs(where: TopicPartition) -> str:
    return f"{_partition_dir(where)}/runs"
