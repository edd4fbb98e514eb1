"""What Spark has planned to read in a batch, from the query's checkpoint: Spark writes it there before the batch runs.

A batch's rows do not say it: offsets may be missing at either end, where a transaction ended or the log was compacted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from holdfast.client.errors import ConfigError
from holdfast.spark.offsets import OffsetRange, Progress

_VERSION: Final = "v1"
_LINES: Final = 3
"""The version, the batch's own facts, and the offsets of the query's one source."""


def last_planned(checkpoint: Path) -> int:
    """The last batch that a query with this checkpoint has begun; -1 if there is none."""
    offsets = checkpoint / "offsets"
    if not offsets.is_dir():
        return -1
    return max((int(path.name) for path in offsets.iterdir() if path.name.isdecimal()), default=-1)


def planned(checkpoint: Path, batch: int) -> list[OffsetRange]:
    path = checkpoint / "offsets" / str(batch)
    lines = path.read_text("utf-8").splitlines()
    if len(lines) != _LINES or lines[0] != _VERSION:
        raise ConfigError(
            f"{path} is not what Spark writes for a query of one source: a pipeline needs a checkpoint of its own"
        )
    progress = Progress.from_json(json.loads(lines[-1]))
    return [OffsetRange(*where, *of) for where, of in sorted(progress.ranges.items())]
