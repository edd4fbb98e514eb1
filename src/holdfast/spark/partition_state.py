"""The state of a query's partitions: the processed and committed offsets of each, and Spark's current batch.

Shared by the thread that Spark calls, which plans and finishes batches, and the threads of the group members, to which
partitions are assigned and from which they are revoked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.types import TopicPartition

UNKNOWN: Final = -1


class Restart(NamedTuple):
    """A partition begins at this offset, although the group has committed a higher one (`newCheckpoint`)."""

    offset: int
    committed: int | None = None
    """Only if the offset of the group is still this one; None if it does not matter."""

    def applies_to(self, offset: int) -> bool:
        return self.offset < offset and self.committed in (None, offset)


@dataclass(slots=True)
class _Assigned:
    member: int
    offset: int
    """The group's offset when the partition was assigned."""
    committed: int
    """The last offset that was committed to the group."""
    revoking: bool = False
    is_restart: bool = False
    """Whether `offset` is before the offset of the group. It must be committed before a batch is planned: if Spark
    repeats the batch, records before the offset of the group are skipped."""

    @property
    def is_ready(self) -> bool:
        return not self.revoking and not self.must_commit_first

    @property
    def must_commit_first(self) -> bool:
        return self.is_restart and self.committed == UNKNOWN


class PartitionState:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._processed: dict[TopicPartition, int] = {}
        """The offsets that Spark has processed, also of revoked partitions, which may be assigned again."""
        self._batch: frozenset[TopicPartition] = frozenset()
        """The partitions that the current batch reads."""
        self._restarts: dict[TopicPartition, Restart] = {}
        """Partitions that no batch of this checkpoint has read yet."""

    # -- called for the group ------------------------------------------------------------------------------------------

    def assigned(
        self, member: int, offsets: Mapping[TopicPartition, int], uncommitted_starts: Collection[TopicPartition] = ()
    ) -> None:
        """These partitions were assigned. The group has no committed offset for those in `uncommitted_starts`."""
        with self._changed:
            for where, offset in offsets.items():
                restart = self._restarts.get(where)
                if restart is not None and restart.applies_to(offset):
                    self._assigned[where] = _Assigned(member, restart.offset, UNKNOWN, is_restart=True)
                    continue
                self._assigned[where] = _Assigned(member, offset, UNKNOWN if where in uncommitted_starts else offset)
            self._changed.notify_all()

    def wait_until_idle(self, partitions: Collection[TopicPartition], deadline: float) -> bool:
        """Excludes these from new batches and waits until the current batch no longer reads them."""
        with self._changed:
            for where in partitions:
                if where in self._assigned:
                    self._assigned[where].revoking = True
            while not self._batch.isdisjoint(partitions):
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
            return True

    def revoked(self, member: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """These partitions, or all of the member, were revoked or lost."""
        with self._changed:
            for where in list(self._assigned) if partitions is None else partitions:
                if where in self._assigned and self._assigned[where].member == member:
                    del self._assigned[where]
            self._changed.notify_all()

    # -- called for Spark ----------------------------------------------------------------------------------------------

    def has_partitions(self) -> bool:
        """Whether partitions are assigned that are not being revoked."""
        with self._changed:
            return any(not held.revoking for held in self._assigned.values())

    def positions(self) -> dict[TopicPartition, int]:
        """The partitions that can be planned, with their position: the later of the group's and Spark's offset."""
        with self._changed:
            return self._positions()

    def _positions(self) -> dict[TopicPartition, int]:
        return {
            where: max(held.offset, self._processed.get(where, 0))
            for where, held in self._assigned.items()
            if held.is_ready
        }

    def plan_batch(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Starts a batch of these ranges. Returns those that may be read: ranges of partitions that were revoked are
        left out, also if the partition was assigned again and another member has committed beyond the start."""
        with self._changed:
            positions = self._positions()
            kept = [one for one in ranges if one.where in positions and positions[one.where] <= one.start]
            self._batch = frozenset(one.where for one in kept if one.start < one.end)
            for one in kept:
                self._restarts.pop(one.where, None)
            return kept

    def restart_at(self, restarts: Mapping[TopicPartition, Restart]) -> None:
        """These partitions begin there when they are assigned. Called before the query joins its group."""
        with self._changed:
            self._restarts = dict(restarts)

    def restart_only_after(self, committed: Mapping[TopicPartition, int]) -> None:
        """The first batch is planned: all other partitions begin at the offset of the group, unless it is still this
        one when they are assigned."""
        with self._changed:
            self._restarts = {
                where: restart._replace(committed=committed[where])
                for where, restart in self._restarts.items()
                if restart.offset < committed.get(where, UNKNOWN)
            }

    def restarts(self) -> dict[TopicPartition, Restart]:
        """The partitions that begin before the offset of the group, as long as no batch has read them."""
        with self._changed:
            return dict(self._restarts)

    def uncommitted_restarts(self) -> set[TopicPartition]:
        """The assigned partitions that cannot be planned, because their start offset is not committed yet."""
        with self._changed:
            return {where for where, held in self._assigned.items() if held.must_commit_first and not held.revoking}

    def replan_batch(self, partitions: Iterable[TopicPartition]) -> None:
        """A batch from before a restart is run again."""
        with self._changed:
            self._batch = frozenset(partitions)

    def mark_processed(self, reached: Mapping[TopicPartition, int]) -> None:
        """Spark has processed all records before these offsets."""
        with self._changed:
            self._processed.update(reached)

    def processed_offset(self, where: TopicPartition) -> int | None:
        """How far Spark has processed a partition, if it ever read it."""
        with self._changed:
            return self._processed.get(where)

    def uncommitted(self) -> dict[int, dict[TopicPartition, int]]:
        """By member: offsets of assigned partitions that are processed and not committed. Never backwards, except for
        the start offset of a restart."""
        with self._changed:
            wanted: dict[int, dict[TopicPartition, int]] = {}
            for where, held in self._assigned.items():
                offset = max(held.offset, self._processed.get(where, 0))
                if offset > held.committed:
                    wanted.setdefault(held.member, {})[where] = offset
            return wanted

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets were committed. One beyond the current position is a late response, from before the log was
        truncated."""
        with self._changed:
            for where, offset in offsets.items():
                held = self._assigned.get(where)
                if held is not None and offset <= max(held.offset, self._processed.get(where, 0)):
                    held.committed = max(held.committed, offset)

    def batch_done(self) -> None:
        """The batch is finished, and its offsets were committed if that was possible."""
        with self._changed:
            self._batch = frozenset()
            self._changed.notify_all()

    def rewind(self, where: TopicPartition, offset: int) -> None:
        """The log ends before the processed offset, because the topic was created again. Continue at its end."""
        with self._changed:
            self._processed[where] = offset
            if where in self._assigned:
                held = self._assigned[where]
                held.offset, held.committed, held.is_restart = offset, UNKNOWN, False
