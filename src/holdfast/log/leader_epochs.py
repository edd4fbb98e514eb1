"""The start offset of each leader epoch (KIP-101), for OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNDEFINED = -1


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class LeaderEpochs:
    def __init__(self, entries: Sequence[tuple[int, int]] = ()) -> None:
        self.entries: list[tuple[int, int]] = []
        self.latest = UNDEFINED
        self.is_dirty = False
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.is_dirty = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` is at `start_offset`. Epochs only increase."""
        if epoch > self.latest:
            self.entries = [*self.entries, (epoch, start_offset)]
            self.latest = epoch
            self.is_dirty = True

    def cut(self, start_offset: int, end_offset: int) -> None:
        """Keep the epochs of existing offsets. The first one begins at the log start offset."""
        kept = [entry for entry in self.entries if entry[1] < max(end_offset, start_offset + 1)]
        at_start = sum(1 for entry in kept if entry[1] <= start_offset)
        if at_start:
            kept = [(kept[at_start - 1][0], start_offset), *kept[at_start:]]
        if kept != self.entries:
            self.entries = kept
            self.latest = kept[-1][0] if kept else UNDEFINED
            self.is_dirty = True

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch up to `epoch`, and where it ends."""
        if epoch == UNDEFINED or not self.entries:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        later = next((entry for entry in self.entries if entry[0] > epoch), None)
        if later is None:
            return EpochEnd(UNDEFINED, UNDEFINED)
        known = [entry[0] for entry in self.entries if entry[0] <= epoch]
        return EpochEnd(known[-1] if known else epoch, later[1])
