"""A state on its disk.

    settings.json
    topics/<topic>/<partition>/beginning.json
                               versions/<first>.json
                               runs/<first>-….arrow

Nothing is ever written over. The version with the highest name counts; it alone says all. Others stay for a while, for
those who have begun to read them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines.disk import Disk
from holdfast.spark.pipelines.enrich.errors import SettingsDiffer
from holdfast.spark.pipelines.enrich.settings import Settings, decode_settings, encode_settings
from holdfast.spark.pipelines.enrich.version import WHAT, Version, decode_version, encode_version, number_of
from holdfast.spark.pipelines.entries import Beginning, decode_beginning, encode_beginning
from holdfast.spark.pipelines.errors import Damaged

TOPICS: Final = "topics"
_ATTEMPTS: Final = 10
"""A version is deleted at the earliest when it has been out of date for the grace time."""


class StateStore:
    def __init__(self, state: Path, disk: Disk | None = None) -> None:
        self.state = state
        self.disk = disk or Disk()

    # -- what there is -------------------------------------------------------------------------------------------------

    def settings(self) -> Settings | None:
        """None if the state has never been begun."""
        path = self.state / "settings.json"
        content = self.disk.read(path)
        return None if content is None else decode_settings(content, str(path))

    def topics(self) -> list[str]:
        return self.disk.directories(self.state / TOPICS)

    def partitions(self, topic: str) -> list[Where]:
        names = self.disk.names(self.state / TOPICS / topic)
        try:
            return [(topic, number) for number in sorted(map(int, names))]
        except ValueError as error:
            raise Damaged(f"{self.state / TOPICS / topic} has something in it that is no partition") from error

    def newest(self, where: Where) -> Version | None:
        """The version that counts; None if the partition has never been begun."""
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

    def run_path(self, where: Where, name: str) -> Path:
        return self._home(where) / "runs" / name

    # -- what is added -------------------------------------------------------------------------------------------------

    def agree(self, settings: Settings) -> None:
        """Begin the state with these settings, or see that it was begun with them. Raises SettingsDiffer."""
        if self.disk.create(self.state / "settings.json", encode_settings(settings)):
            return
        there = self.settings()
        assert there is not None, "they are never deleted"
        difference = there.difference(settings)
        if difference is not None:
            raise SettingsDiffer(
                f"the state in {self.state} was begun with other settings ({difference}): use these, or another path; "
                "nothing was changed"
            )

    def begin(self, where: Where, first: int) -> Version:
        """Where the partition begins: there, or where somebody else has begun it. It has no totals then."""
        self.disk.create(self._home(where) / "beginning.json", encode_beginning(Beginning(*where, first)))
        beginning = self._beginning(where)
        assert beginning is not None, "it is never deleted"
        return beginning

    def append(self, version: Version) -> bool:
        """False if somebody else went on from there, or has done so already: then look what counts now."""
        if self._is_behind(version):
            # Its name may be free all the same: somebody was away for so long that his version was deleted.
            return False
        created = self.disk.create(self._versions(version.where) / version.name, encode_version(version))
        # If it is behind now, either somebody has gone on from it, or it came too late after all. To look again is
        # right in both cases, and it does no harm where it stands: what counts is the highest.
        return created and not self._is_behind(version)

    def _is_behind(self, version: Version) -> bool:
        return any(number_of(name) > version.first for name in self.disk.names(self._versions(version.where)))

    # -- what nobody needs ---------------------------------------------------------------------------------------------

    def tidy(self, newest: Version, grace_s: float) -> int:
        """Delete versions that have been out of date for the grace time, runs that are in none of the others, and what
        those who were killed have left unfinished. Returns how many runs are gone.

        Of the versions that stay, the oldest has every run that is older than it and in any of them: once a run is left
        out it never comes back. So only that one is read. Runs that no version lists yet are young: they are touched
        right before they are entered, and a batch has the grace time between the one and the other. The clock is the
        file system's, by when the newest version was made: those of the machines may differ.
        """
        where = newest.where
        versions, runs = self._versions(where), self.run_path(where, "")
        there = self.disk.names(runs)  # before the versions: what is entered in between is not seen as unlisted
        now_s = self._made_s(versions / newest.name)
        if now_s == math.inf:
            return 0  # others are so far ahead that it is gone: what it does not list may be what counts now
        for directory in (runs, versions):
            self._remove_unfinished(directory, now_s - 2 * grace_s)
        # The one before the last stays in any case: whoever has to delete a damaged one falls back to it.
        before = [name for name in self.disk.names(versions) if number_of(name) < newest.first]
        old = [name for name in before if now_s - self._made_s(versions / name) >= grace_s]
        content = self.disk.read(versions / old[-1]) if old else None
        if content is None:
            return 0  # or somebody else tidies up
        oldest = decode_version(content, where, str(versions / old[-1]))
        listed = {run.name for run in (*oldest.runs, *newest.runs)}
        for name in old[:-1]:
            self.disk.remove(versions / name)
        gone = [one for one in there if one not in listed and now_s - self._made_s(runs / one) >= 2 * grace_s]
        for name in gone:
            self.disk.remove(runs / name)
        return len(gone)

    def _remove_unfinished(self, directory: Path, before_s: float) -> None:
        """Of those that were killed. Whoever is still at work writes on, and then gives the file its name at once."""
        for name in self.disk.unfinished(directory):
            if self._made_s(directory / name) <= before_s:
                self.disk.remove(directory / name)

    @staticmethod
    def _made_s(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def _beginning(self, where: Where) -> Version | None:
        path = self._home(where) / "beginning.json"
        content = self.disk.read(path)
        if content is None:
            return None
        first = decode_beginning(content, where, str(path), WHAT).first
        return Version(*where, first, first)

    def _home(self, where: Where) -> Path:
        return self.state / TOPICS / where[0] / str(where[1])

    def _versions(self, where: Where) -> Path:
        return self._home(where) / "versions"
