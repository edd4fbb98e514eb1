"""Replaces segments with a compacted one, so that a crash leaves either the old segments or the new one.

    N.log.cleaned   being written; the old segments are authoritative, and opening the log removes it
    N.log.swap      complete and on disk; from this rename on the new segment is authoritative
    N.log           the old segments are removed, and the swap is complete

Names and order are Kafka's, so Holdfast and Kafka can finish each other's interrupted swaps. A swap replaces all
segments from N up to the end offset of its file. Compaction therefore keeps the last batch of the old segments, if
necessary without its records.
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

    def commit(self) -> None:
        """From here on the new segment is authoritative. Like `finish`, it may be called again."""
        if self.new.file.path != self.new.path:
            self.new.rename(SWAP)
            disk.sync_directory(self.new.path.parent)

    def finish(self) -> None:
        """Completes the swap."""
        first = self.old[0]
        for segment in self.old[1:]:
            for path in segment.paths:
                disk.unlink(path)
        if self.new.file.path != self.new.path:
            # The indexes of the old segment must not remain beside the new one. Those of the new one, which may exist
            # if this is called again, must be kept.
            for path in first.paths[1:]:
                disk.unlink(path)
            self.new.rename("")
        disk.sync_directory(self.new.path.parent)
        self.new.indexes.write()


def sweep_cleaned(directory: Path) -> None:
    """Remove the files of unfinished compactions."""
    for path in directory.glob(f"*{CLEANED}"):
        disk.unlink(path)


def finish_interrupted(directory: Path) -> None:
    """When a log is opened, finish a swap that a crash interrupted."""
    swaps = sorted(directory.glob(f"*.log{SWAP}"))
    if not swaps:
        return
    path = swaps[0]
    base, _, _ = path.name.partition(".")
    end_offset = _end_offset(path, int(base)) if base.isdecimal() else None
    # Kafka also uses such files to split segments, and then there are several.
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
    """The end of the segment, if all of it is valid."""
    file = OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    size, position, end_offset = os.fstat(file.fd).st_size, 0, None
    for position, header in scan.sound_batches(file, base_offset, size):
        position += header.size
        end_offset = header.last_offset + 1
    return end_offset if position == size else None
