"""Where a query with a new checkpoint begins, if its group has committed offsets.

By default at the offsets of the group. If the table of the query was dropped together with the checkpoint, the records
before these offsets are missing afterwards, so the driver logs a warning. The option `newCheckpoint` changes this rule
(docs/decisions/0031-a-new-checkpoint.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.client.errors import HoldfastError
from holdfast.spark.options import NEW_CHECKPOINT, NewCheckpoint, ReadOptions
from holdfast.spark.partition_state import Restart
from holdfast.types import TopicPartition

Offsets = Mapping[TopicPartition, int]

_ADVICE: Final = (
    f"{NEW_CHECKPOINT}={NewCheckpoint.STARTING_OFFSETS} to read them again, or {NEW_CHECKPOINT}={NewCheckpoint.GROUP} "
    "to continue at the offsets of the group"
)

logger = logging.getLogger("holdfast.spark")


class GroupIsAhead(HoldfastError):
    """The checkpoint is new, and the group has committed offsets after the start (newCheckpoint=fail)."""

    FATAL = True


def restarts(
    options: ReadOptions, starting: Callable[[], Offsets], committed: Callable[[], Offsets]
) -> dict[TopicPartition, Restart]:
    """The partitions of a new checkpoint that begin before the offset of the group. Raises GroupIsAhead.

    `starting` and `committed` look up the offsets of all partitions: of the starting options, and of the group.
    """
    match options.new_checkpoint:
        case NewCheckpoint.STARTING_OFFSETS:
            return {where: Restart(offset) for where, offset in starting().items()}
        case NewCheckpoint.FAIL:
            skipped = _skipped(starting(), committed())
            if skipped:
                raise GroupIsAhead(f"{_describe(options, skipped)} ({NEW_CHECKPOINT}=fail): set {_ADVICE}")
        case None:
            _warn_of_skipped(options, starting, committed)
        case NewCheckpoint.GROUP:
            pass
    return {}


def _warn_of_skipped(options: ReadOptions, starting: Callable[[], Offsets], committed: Callable[[], Offsets]) -> None:
    try:
        offsets = committed()
        skipped = _skipped(starting(), offsets) if offsets else {}
    except HoldfastError as error:
        if error.retriable:
            raise
        # For example, there is no starting offset for a partition that continues at the group's. The query reports the
        # error itself if it needs the offset.
        return
    if skipped:
        logger.warning("%s; set %s", _describe(options, skipped), _ADVICE)


def _skipped(starting: Offsets, committed: Offsets) -> dict[TopicPartition, int]:
    return {
        where: offset - starting[where]
        for where, offset in committed.items()
        if where in starting and offset > starting[where]
    }


def _describe(options: ReadOptions, skipped: Mapping[TopicPartition, int]) -> str:
    return (
        f"the checkpoint of this query is new, and its group {options.group_id!r} has committed offsets after "
        f"{options.starting.name}: {sum(skipped.values())} records of {len(skipped)} partitions between them are not "
        "read"
    )
