"""What a query holds: its partitions, how far each is processed and stored, and the batch that Spark works on.

Shared by the thread that Spark calls, which plans and finishes batches, and the threads of the seats, to which the
group gives partitions and from which it takes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.spark.offsets import OffsetRange, Where

UNKNOWN: Final = -1


@dataclass(slots=True)
class _Held:
    seat: int
    offset: int
    """Where the group was when the partition came."""
    stored: int
    """How far the group knows that it is processed."""
    going: bool = False


class Holdings:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[Where, _Held] = {}
        self._finished: dict[Where, int] = {}
        """How far Spark is, also of what is no longer held: it may come back."""
        self._batch: frozenset[Where] = frozenset()
        """The partitions that the batch in flight reads."""

    # -- what the group does -------------------------------------------------------------------------------------------

    def gain(self, seat: int, offsets: Mapping[Where, int], unstored: Collection[Where] = ()) -> None:
        """The group has given these partitions. It has no offset of the `unstored`, which begin somewhere."""
        with self._changed:
            for where, offset in offsets.items():
                self._held[where] = _Held(seat, offset, UNKNOWN if where in unstored else offset)
            self._changed.notify_all()

    def wait_until_free(self, partitions: Collection[Where], deadline: float) -> bool:
        """From now on no batch is planned with these; waits until the one in flight no longer reads them."""
        with self._changed:
            for where in partitions:
                if where in self._held:
                    self._held[where].going = True
            while not self._batch.isdisjoint(partitions):
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
            return True

    def lose(self, seat: int, partitions: Collection[Where] | None = None) -> None:
        """These, or all of the seat, are no longer held."""
        with self._changed:
            for where in list(self._held) if partitions is None else partitions:
                if where in self._held and self._held[where].seat == seat:
                    del self._held[where]
            self._changed.notify_all()

    # -- what Spark does -----------------------------------------------------------------------------------------------

    def positions(self) -> dict[Where, int]:
        """What can be planned, and from where on: the further of what the group and what Spark has processed."""
        with self._changed:
            return self._positions()

    def _positions(self) -> dict[Where, int]:
        return {
            where: max(held.offset, self._finished.get(where, 0))
            for where, held in self._held.items()
            if not held.going
        }

    def begin(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """A batch reads these. Returns those of them that are still held; the others must not be read, nor those that
        went and came back meanwhile, if others have read some of them."""
        with self._changed:
            positions = self._positions()
            kept = [one for one in ranges if one.where in positions and positions[one.where] <= one.start]
            self._batch = frozenset(one.where for one in kept if one.start < one.end)
            return kept

    def begin_again(self, partitions: Iterable[Where]) -> None:
        """A batch of before a restart is run once more."""
        with self._changed:
            self._batch = frozenset(partitions)

    def finish(self, reached: Mapping[Where, int]) -> None:
        """Spark has processed everything before these offsets."""
        with self._changed:
            self._finished.update(reached)

    def finished(self, where: Where) -> int | None:
        """How far Spark is with a partition, if it ever had it."""
        with self._changed:
            return self._finished.get(where)

    def to_store(self) -> dict[int, dict[Where, int]]:
        """By seat: what is processed and held and the group does not know yet. Never backwards."""
        with self._changed:
            wanted: dict[int, dict[Where, int]] = {}
            for where, held in self._held.items():
                offset = max(held.offset, self._finished.get(where, 0))
                if offset > held.stored:
                    wanted.setdefault(held.seat, {})[where] = offset
            return wanted

    def store(self, offsets: Mapping[Where, int]) -> None:
        """The group knows these offsets. One beyond where the partition is now is a late answer, of before its log went
        back."""
        with self._changed:
            for where, offset in offsets.items():
                held = self._held.get(where)
                if held is not None and offset <= max(held.offset, self._finished.get(where, 0)):
                    held.stored = max(held.stored, offset)

    def free(self) -> None:
        """No batch is in flight, and what is processed was stored as far as that is possible."""
        with self._changed:
            self._batch = frozenset()
            self._changed.notify_all()

    def go_back(self, where: Where, offset: int) -> None:
        """The log of a partition ends before what was processed: there is another log now. Begin there."""
        with self._changed:
            self._finished[where] = offset
            if where in self._held:
                self._held[where].offset, self._held[where].stored = offset, UNKNOWN
