"""The remaining part of a repeated batch, which the planner decides once.

Spark repeats a batch that was planned and not finished before a restart. Meanwhile other members of the group may have
committed part of it, and retention may have deleted part of it. The planner decides from which offset on each partition
is read. A pipeline needs the same decision, because it must not record an unread range as stored. The planner runs in
Spark's runner process and the pipeline in the driver, so the planner writes its decision to a directory that the
pipeline passes as an option (docs/decisions/0023-a-repeated-batch-is-planned-once.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from holdfast.client.errors import HoldfastError
from holdfast.spark.batch_offsets import BatchOffsets, OffsetRange
from holdfast.types import TopicPartition

_FILE: Final = "replayed.json"


class NotReplayed(HoldfastError):
    """Spark repeats a batch that the planner has not planned again."""


def skip_before(ranges: Iterable[OffsetRange], offsets: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges without the records before these offsets. A range without a remainder is empty, not omitted."""
    return [one._replace(start=min(one.end, max(one.start, offsets.get(one.where, one.start)))) for one in ranges]


def write_decision(directory: Path, batch: BatchOffsets, ranges: Iterable[OffsetRange]) -> None:
    """Called by the planner, before Spark runs the batch."""
    unfinished = directory / f"{_FILE}.unfinished"
    unfinished.write_text(json.dumps({"batch": batch.to_json(), "ranges": list(ranges)}))
    unfinished.replace(directory / _FILE)


def read_decision(directory: Path, batch: BatchOffsets) -> list[OffsetRange]:
    """Called by the pipeline, when Spark runs the batch. Raises NotReplayed."""
    try:
        decided = json.loads((directory / _FILE).read_text())
    except FileNotFoundError:
        decided = {"batch": None}
    if decided["batch"] != batch.to_json():
        raise NotReplayed("Spark repeats a batch that the source has not planned again: restart the query")
    return [OffsetRange(*one) for one in decided["ranges"]]
