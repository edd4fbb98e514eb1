"""Aggregates one batch: skips records that the state reflects already, adds the rest, and commits new versions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.aggregate.errors import RunMissing
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.task import Advanced
from holdfast.spark.pipelines.aggregate.version import Version
from holdfast.spark.pipelines.dedup import remaining
from holdfast.spark.pipelines.errors import Damaged, DataLoss, Unwritable
from holdfast.types import TopicPartition

GRACE_S: Final = 300.0
"""How long superseded versions are kept for current readers."""
CLEANUP_INTERVAL_S: Final = 60.0
_ATTEMPTS: Final = 3

logger = logging.getLogger("holdfast.spark")

Advance = Callable[[Mapping[TopicPartition, Version]], Sequence[Advanced]]
"""Adds the batch's records of these partitions, from the ends of the versions on, to the totals of the versions."""


@dataclass(slots=True)
class AggregateResult:
    """The result of a batch."""

    records: int = 0
    keys: int = 0
    """Totals that have changed."""
    partitions: int = 0
    loaded_bytes: int = 0
    """State that was not in the cache."""
    written_bytes: int = 0
    state_bytes: int = 0
    """Size of all partitions that the batch has changed."""
    read: int = 0
    """Offsets in the ranges of the batch."""
    entered: int = 0
    """Of these, the ones that it has added to the state."""
    lost: list[OffsetRange] = field(default_factory=list)

    @property
    def already(self) -> int:
        """Offsets that the state reflected before, by another writer or an earlier attempt."""
        return self.read - self.entered


class AggregateWriter:
    """One writer of a state. It caches the versions that it has committed, and reads them again if they do not
    match."""

    def __init__(
        self,
        store: StateStore,
        writer: str,
        *,
        fail_on_data_loss: bool = True,
        grace_s: float = GRACE_S,
        max_concurrent: int = 1,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_concurrent` versions, of different partitions, are committed at the same time. Each waits for the
        device, which handles several requests together."""
        self._store = store
        self._max_concurrent = max_concurrent
        self._writer = writer
        self._fail_on_data_loss = fail_on_data_loss
        self._grace_s = grace_s
        self._monotonic_s = monotonic_s
        self._versions: dict[TopicPartition, Version] = {}
        self._cleaned_s: dict[TopicPartition, float] = {}

    def apply(self, ranges: Sequence[OffsetRange], advance: Advance) -> AggregateResult:
        """When it returns, the state reflects all records of the ranges, by this writer or another."""
        pending = [one for one in ranges if one.start < one.end]
        done = AggregateResult(read=sum(one.end - one.start for one in pending))
        try:
            while pending := [rest for one in pending if (rest := self._remaining(one, done)) is not None]:
                advanced = self._run_advance(pending, advance)
                if advanced is not None:
                    done.loaded_bytes += sum(one.loaded_bytes for one in advanced.values())
                    pending = self._commit_versions(pending, advanced, done)
        except OSError as error:
            raise Unwritable.because(str(self._store.state), error) from error
        return done

    # -- remaining ranges ----------------------------------------------------------------------------------------------

    def _remaining(self, wanted: OffsetRange, done: AggregateResult) -> OffsetRange | None:
        while True:
            found = remaining(wanted, self._current_version(wanted).end)
            if found.gap is None:
                return found.rest
            self._record_gap(wanted, found.gap, done)

    def _current_version(self, wanted: OffsetRange) -> Version:
        """The current version. A cached one that does not match the batch may be out of date."""
        known = self._versions.get(wanted.where)
        if known is None or known.end != wanted.start:
            known = self._store.newest(wanted.where) or self._store.begin(wanted.where, wanted.start)
            self._versions[wanted.where] = known
        return known

    def _record_gap(self, wanted: OffsetRange, lost: tuple[int, int], done: AggregateResult) -> None:
        """Raises DataLoss, or commits a version which says that these records are missing."""
        topic, partition = wanted.where
        first, end = lost
        what = f"{topic}-{partition} is counted up to {first}, and the batch begins at {end}"
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{what}: the records between were deleted, or read by a member of the group that does not count them. "
                f"Reset the group's offset to {first} and start with a new checkpoint; or continue with the available "
                "records by the option failOnDataLoss=false"
            )
        version = self._versions.pop(wanted.where)
        gap = replace(version, first=first, end=end, writer=self._writer, at_ms=_now_ms(), is_lost=True)
        if self._store.append(gap):
            done.lost.append(OffsetRange(topic, partition, first, end))
            logger.warning("%s: continuing, with the gap in the state (failOnDataLoss=false)", what)

    def _run_advance(self, pending: Sequence[OffsetRange], advance: Advance) -> dict[TopicPartition, Advanced] | None:
        """None if another writer has superseded the versions, so that runs were deleted: compute the rest again."""
        versions = {one.where: self._versions[one.where] for one in pending}
        for attempt in range(_ATTEMPTS):
            try:
                return {one.where: one for one in advance(versions)}
            except RunMissing as missing:
                newest = {where: self._store.newest(where) for where in versions}
                if any(newest[where] != version for where, version in versions.items() if version.runs):
                    self._versions.clear()
                    return None
                if attempt == _ATTEMPTS - 1:
                    raise Damaged(f"{missing}; the current version lists it. Restore it from a backup") from missing
        raise AssertionError("it has returned or raised")

    # -- commits -------------------------------------------------------------------------------------------------------

    def _commit_versions(
        self, pending: Sequence[OffsetRange], advanced: Mapping[TopicPartition, Advanced], done: AggregateResult
    ) -> list[OffsetRange]:
        """Returns the ranges for which another writer was faster: part of them may be left."""
        versions = [self._next_version(one, advanced.get(one.where)) for one in pending]
        if self._max_concurrent == 1 or len(versions) == 1:
            entered = [self._commit_version(version, advanced.get(version.where)) for version in versions]
        else:
            with ThreadPoolExecutor(self._max_concurrent) as threads:
                entered = list(threads.map(lambda one: self._commit_version(one, advanced.get(one.where)), versions))
        lost_races = []
        for one, version, is_in in zip(pending, versions, entered, strict=True):
            if is_in:
                self._versions[one.where] = version
                self._add_to_result(version, advanced.get(one.where), done)
                self._delete_superseded(version)
            else:
                del self._versions[one.where]  # its run is deleted when it is old; another writer may use it
                lost_races.append(one)
        return lost_races

    def _next_version(self, one: OffsetRange, advanced: Advanced | None) -> Version:
        base = self._versions[one.where]
        assert base.end == one.start, (base, one)
        runs = base.runs if advanced is None else advanced.runs  # the range may contain no records
        dropped_before_us = base.dropped_before_us if advanced is None else advanced.dropped_before_us
        return Version(
            *one.where, base.end, one.end, runs, self._writer, _now_ms(), dropped_before_us=dropped_before_us
        )

    def _commit_version(self, version: Version, advanced: Advanced | None) -> bool:
        return self._refresh_run(self._versions[version.where], advanced) and self._store.append(version)

    @staticmethod
    def _add_to_result(version: Version, advanced: Advanced | None, done: AggregateResult) -> None:
        done.partitions += 1
        done.entered += version.end - version.first
        done.state_bytes += version.size_bytes
        if advanced is not None:
            done.records += advanced.records
            done.keys += advanced.keys
            done.written_bytes += advanced.written_bytes

    def _refresh_run(self, base: Version, advanced: Advanced | None) -> bool:
        """False if the run does not exist because another writer has continued and deleted it."""
        if advanced is not None:
            try:
                self._store.refresh_run(base.where, advanced.runs[0].name)
            except FileNotFoundError:
                if self._store.newest(base.where) == base:
                    raise
                return False  # the writer that deleted it has committed a newer version
        return True

    def _delete_superseded(self, version: Version) -> None:
        now_s = self._monotonic_s()
        if now_s - self._cleaned_s.get(version.where, -math.inf) >= CLEANUP_INTERVAL_S:
            self._cleaned_s[version.where] = now_s
            try:
                self._store.delete_superseded(version, self._grace_s)
            except OSError as error:  # the batch is committed; a later clean-up will do it
                logger.warning("could not delete superseded versions of %s-%s: %s", *version.where, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
