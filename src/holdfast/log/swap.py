"""Putting a compacted segment in the place of those it was made from, so that a kill leaves one or the other.

    N.log.cleaned   being written; the old segments are the truth, and opening the log sweeps it away
    N.log.swap      whole and on the disk: from this rename on the new segment is the truth
    N.log           the old segments are gone, the last rename is done

Names and order are Kafka's, so each of the two finishes what the other was killed in. What a swap replaces is
told by the offsets in the file itself: everything from N up to its end. For that compaction keeps the last batch
of the old segments, if need be without its records.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.log import disk, scan
from holdfast.log.errors import CorruptLog
from holdfast.log.segment import Segment
from holdfast.log.segment_file import OpenFile

CLEANED = ".cleaned"
SWAP = ".swap"
_SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class Swap(NamedTuple):
    old: Sequence[Segment]
    new: Segment

    def decide(self) -> None:
        """From here on the new segment counts, whatever happens. Like `finish` it may be called again."""
        if self.new.file.path != self.new.path:
            self.new.rename(SWAP)
            disk.sync_directory(self.new.path.parent)

    def finish(self) -> None:
        """All that remains to be done."""
        first = self.old[0]
        for segment in self.old[1:]:
            for path in segment.paths:
                disk.unlink(path)
        if self.new.file.path != self.new.path:
            # An index that describes the old content must never stand beside the new. Those of the new one, which
            # may be there when this is called again, must stay.
            for path in first.paths[1:]:
                disk.unlink(path)
            self.new.rename("")
        disk.sync_directory(self.new.path.parent)
        self.new.indexes.write()


def sweep_cleaned(directory: Path) -> None:
    """Remove what compactions left that were never decided."""
    for path in directory.glob(f"*{CLEANED}"):
        disk.unlink(path)


def finish_interrupted(directory: Path) -> None:
    """Finish, on opening a log, the swap that a kill interrupted."""
    swaps = sorted(directory.glob(f"*.log{SWAP}"))
    if not swaps:
        return
    path = swaps[0]
    base, _, _ = path.name.partition(".")
    end_offset = _end_offset(path, int(base)) if base.isdecimal() else None
    # Kafka also splits segments by way of such files; then there are several at a time.
    if end_offset is None or len(swaps) > 1 or any(directory.glob(f"*{CLEANED}")):
        raise CorruptLog(f"{path} is a compaction that Apache Kafka has not finished; start Kafka on it once")
    target = path.with_suffix("")
    for old in sorted(directory.iterdir()):
        is_replaced = old.stem.isdecimal() and int(base) <= int(old.stem) < end_offset
        if is_replaced and old.suffix in _SEGMENT_SUFFIXES and old != target:
            disk.unlink(old)
    disk.rename(path, target)
    disk.sync_directory(directory)


def _end_offset(path: Path, base_offset: int) -> int | None:
    """Where the segment ends, if all of it is sound."""
    file = OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    size, position, end_offset = os.fstat(file.fd).st_size, 0, None
    for position, header in scan.sound_batches(file, base_offset, size):
        position += header.size
        end_offset = header.last_offset + 1
    return end_offset if position == size else None
