"""Takes in one batch: leaves out what the state reflects already, has the rest added, and enters new versions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.pipelines.due import due
from holdfast.spark.pipelines.enrich.errors import RunGone
from holdfast.spark.pipelines.enrich.store import StateStore
from holdfast.spark.pipelines.enrich.task import Advanced
from holdfast.spark.pipelines.enrich.version import Version
from holdfast.spark.pipelines.errors import Damaged, DataLoss, Unwritable

GRACE_S: Final = 300.0
"""How long versions that are out of date stay for those who read them."""
TIDY_EVERY_S: Final = 60.0
_ATTEMPTS: Final = 3

logger = logging.getLogger("holdfast.spark")

Advance = Callable[[Mapping[Where, Version]], Sequence[Advanced]]
"""Adds the batch's records of these partitions, from the versions' ends on, to what the versions have."""


@dataclass(slots=True)
class Enriched:
    """What became of a batch."""

    records: int = 0
    keys: int = 0
    """Totals that have changed."""
    partitions: int = 0
    loaded_bytes: int = 0
    """Of state, because it was not in the cache."""
    written_bytes: int = 0
    state_bytes: int = 0
    """Of all the partitions that the batch has changed."""
    read: int = 0
    """Offsets that the batch was to read."""
    entered: int = 0
    """Of these, those by which it has advanced the state."""
    lost: list[OffsetRange] = field(default_factory=list)

    @property
    def already(self) -> int:
        """Offsets that the state had before, by others or by an earlier attempt."""
        return self.read - self.entered


class Enricher:
    """One writer of a state. It remembers the versions that it has made, and looks again when that does not fit."""

    def __init__(
        self,
        store: StateStore,
        writer: str,
        *,
        fail_on_data_loss: bool = True,
        grace_s: float = GRACE_S,
        at_once: int = 1,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`at_once`: so many versions, of different partitions, are entered at the same time. Each waits for the
        device, and a device takes many who wait together."""
        self._store = store
        self._at_once = at_once
        self._writer = writer
        self._fail_on_data_loss = fail_on_data_loss
        self._grace_s = grace_s
        self._monotonic_s = monotonic_s
        self._versions: dict[Where, Version] = {}
        self._tidied_s: dict[Where, float] = {}

    def enrich(self, ranges: Sequence[OffsetRange], advance: Advance) -> Enriched:
        """When it returns, the state reflects all of the ranges, by us or by others."""
        pending = [one for one in ranges if one.start < one.end]
        done = Enriched(read=sum(one.end - one.start for one in pending))
        try:
            while pending := [rest for one in pending if (rest := self._rest(one, done)) is not None]:
                advanced = self._advanced(pending, advance)
                if advanced is not None:
                    done.loaded_bytes += sum(one.loaded_bytes for one in advanced.values())
                    pending = self._enter_all(pending, advanced, done)
        except OSError as error:
            raise Unwritable.because(self._store.state, error) from error
        return done

    # -- what is left --------------------------------------------------------------------------------------------------

    def _rest(self, wanted: OffsetRange, done: Enriched) -> OffsetRange | None:
        while True:
            found = due(wanted, self._version(wanted).end)
            if found.lost is None:
                return found.rest
            self._lose(wanted, found.lost, done)

    def _version(self, wanted: OffsetRange) -> Version:
        """What counts. What is remembered does as long as it fits; else others may have gone on."""
        known = self._versions.get(wanted.where)
        if known is None or known.end != wanted.start:
            known = self._store.newest(wanted.where) or self._store.begin(wanted.where, wanted.start)
            self._versions[wanted.where] = known
        return known

    def _lose(self, wanted: OffsetRange, lost: tuple[int, int], done: Enriched) -> None:
        """Raises, or enters that these records are in no total."""
        topic, partition = wanted.where
        first, end = lost
        what = f"{topic}-{partition} is counted up to {first}, and the batch begins at {end}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: the records between are gone, or were read by a member of the group that does not count "
                f"them. Set the group's offset back to {first} and start with a new checkpoint; or go on with what is "
                "there by the option failOnDataLoss=false"
            )
        version = self._versions.pop(wanted.where)
        gap = replace(version, first=first, end=end, writer=self._writer, at_ms=_now_ms(), is_lost=True)
        if self._store.append(gap):
            done.lost.append(OffsetRange(topic, partition, first, end))
            logger.warning("%s: going on, with the gap in the state (failOnDataLoss=false)", what)

    def _advanced(self, pending: Sequence[OffsetRange], advance: Advance) -> dict[Where, Advanced] | None:
        """None if others have gone on meanwhile, so that runs are gone: look again what is left."""
        versions = {one.where: self._versions[one.where] for one in pending}
        for attempt in range(_ATTEMPTS):
            try:
                return {one.where: one for one in advance(versions)}
            except RunGone as gone:
                newest = {where: self._store.newest(where) for where in versions}
                if any(newest[where] != version for where, version in versions.items() if version.runs):
                    self._versions.clear()
                    return None
                if attempt == _ATTEMPTS - 1:
                    raise Damaged(f"{gone}; the version that counts lists it. Take it from a backup") from gone
        raise AssertionError("it has returned or raised")

    # -- what is entered -----------------------------------------------------------------------------------------------

    def _enter_all(
        self, pending: Sequence[OffsetRange], advanced: Mapping[Where, Advanced], done: Enriched
    ) -> list[OffsetRange]:
        """Returns those where somebody else was faster: part of them may be left."""
        versions = [self._next_version(one, advanced.get(one.where)) for one in pending]
        if self._at_once == 1 or len(versions) == 1:
            entered = [self._enter(version, advanced.get(version.where)) for version in versions]
        else:
            with ThreadPoolExecutor(self._at_once) as threads:
                entered = list(threads.map(lambda one: self._enter(one, advanced.get(one.where)), versions))
        lost_races = []
        for one, version, is_in in zip(pending, versions, entered, strict=True):
            if is_in:
                self._versions[one.where] = version
                self._tell(version, advanced.get(one.where), done)
                self._tidy(version)
            else:
                del self._versions[one.where]  # its run is swept when it is old; somebody may have gone on from it
                lost_races.append(one)
        return lost_races

    def _next_version(self, one: OffsetRange, advanced: Advanced | None) -> Version:
        base = self._versions[one.where]
        assert base.end == one.start, (base, one)
        runs = base.runs if advanced is None else advanced.runs  # there may have been no records in the range
        dropped_before_us = base.dropped_before_us if advanced is None else advanced.dropped_before_us
        return Version(
            *one.where, base.end, one.end, runs, self._writer, _now_ms(), dropped_before_us=dropped_before_us
        )

    def _enter(self, version: Version, advanced: Advanced | None) -> bool:
        return self._is_still_there(self._versions[version.where], advanced) and self._store.append(version)

    @staticmethod
    def _tell(version: Version, advanced: Advanced | None, done: Enriched) -> None:
        done.partitions += 1
        done.entered += version.end - version.first
        done.state_bytes += version.size_bytes
        if advanced is not None:
            done.records += advanced.records
            done.keys += advanced.keys
            done.written_bytes += advanced.written_bytes

    def _is_still_there(self, base: Version, advanced: Advanced | None) -> bool:
        """Tidying up leaves young runs alone; this one may have waited long for its batch to end, and is made young."""
        if advanced is not None:
            try:
                self._store.disk.touch(self._store.run_path(base.where, advanced.runs[0].name))
            except FileNotFoundError:
                if self._store.newest(base.where) == base:
                    raise
                return False  # whoever tidied up has gone on as well
        return True

    def _tidy(self, version: Version) -> None:
        now_s = self._monotonic_s()
        if now_s - self._tidied_s.get(version.where, -math.inf) >= TIDY_EVERY_S:
            self._tidied_s[version.where] = now_s
            try:
                self._store.tidy(version, self._grace_s)
            except OSError as error:  # the batch is entered; somebody else will do it
                logger.warning("what is out of date of %s-%s stays for now: %s", *version.where, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
