"""The planned ranges of a batch, from the query's checkpoint: Spark writes them there before the batch runs.

The rows of a batch are not sufficient, because offsets may be missing at either end after transactions or compaction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import BatchOffsets

_VERSION: Final = "v1"
_LINES: Final = 3
"""The version, the metadata of the batch, and the offsets of the query's one source."""


def last_planned_batch(checkpoint: Path) -> int:
    """The last batch that a query with this checkpoint has planned; -1 if there is none."""
    offsets = checkpoint / "offsets"
    if not offsets.is_dir():
        return -1
    return max((int(path.name) for path in offsets.iterdir() if path.name.isdecimal()), default=-1)


def planned_batch(checkpoint: Path, batch: int) -> BatchOffsets:
    path = checkpoint / "offsets" / str(batch)
    lines = path.read_text("utf-8").splitlines()
    if len(lines) != _LINES or lines[0] != _VERSION:
        raise ConfigError(
            f"{path} is not what Spark writes for a query of one source: a pipeline needs a checkpoint of its own"
        )
    return BatchOffsets.from_json(json.loads(lines[-1]))
