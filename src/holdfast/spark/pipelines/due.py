"""What of a batch is not kept yet: the rule that makes a batch that comes again do nothing twice."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.spark.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Due:
    """What is left of a batch's share of a partition, and which records before that are gone."""

    rest: OffsetRange | None
    lost: tuple[int, int] | None = None


def due(wanted: OffsetRange, end: int) -> Due:
    """Of what a batch has read, what is not kept yet; what is kept goes up to `end`."""
    if wanted.end <= end:
        return Due(None)
    return Due(wanted._replace(start=max(wanted.start, end)), (end, wanted.start) if end < wanted.start else None)
