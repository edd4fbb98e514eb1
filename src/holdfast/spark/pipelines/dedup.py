"""The part of a batch that is not stored yet. Skipping the rest makes repeated batches idempotent."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.spark.batch_offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining range of a partition in a batch, and the gap before it."""

    rest: OffsetRange | None
    gap: tuple[int, int] | None = None


def remaining(wanted: OffsetRange, end: int) -> Remaining:
    """The part of the batch's range that is not stored yet; records before `end` are stored."""
    if wanted.end <= end:
        return Remaining(None)
    return Remaining(wanted._replace(start=max(wanted.start, end)), (end, wanted.start) if end < wanted.start else None)
