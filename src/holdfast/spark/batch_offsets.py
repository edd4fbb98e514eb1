"""The offsets that Spark keeps in the checkpoint of a query.

    {"orders": {"0": [1200, 1300], "3": [77, 77]}, "": {"orders": 12, "": 1794787200000}}

Each assigned partition has the offsets from and to which the batch reads it. A batch can therefore be planned from this
alone, although the assignment differs from batch to batch. The empty string, which cannot be a topic's name, is a
reserved key. Its value has the number of partitions of each topic at the first start of the query, because partitions
that were added later are read from their beginning. Again under the empty string, it has the time at which the batch
was planned, in milliseconds since 1970.

With newCheckpoint=startingOffsets, it also has the partitions that were not assigned to the query at its first batch,
with the offset that the group had committed then, and the offset at which the query begins
(docs/decisions/0031-a-new-checkpoint.md):

    {"orders": {"0": [0, 100]}, "": {"orders": 2, "": 1794787200000, "not assigned": {"orders": {"1": [950, 0]}}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.client.errors import ConfigError
from holdfast.types import TopicPartition

_RESERVED_KEY: Final = ""
_PLANNED_KEY: Final = ""
"""It is stored beside the initial topics. An earlier version treats it as one of them and never looks it up."""
_RESTARTS_KEY: Final = "not assigned"
"""Not the name of a topic, because of the space. An earlier version fails, because it would skip records."""


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to, but excluding, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    ranges: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The start and end of each partition in the batch; equal if there is nothing to read."""
    initial_partitions: Mapping[str, int] | None = None
    """The number of partitions of each topic at the first start of the query; None before that."""
    planned_ms: int | None = None
    """When the batch was planned, by the driver's clock; None before the first batch, and in checkpoints of earlier
    versions."""
    restarts: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Of partitions that were never assigned: the group's offset at the first batch, and the start offset."""

    @property
    def offset_ranges(self) -> list[OffsetRange]:
        """By topic and partition."""
        return [OffsetRange(*where, *of) for where, of in sorted(self.ranges.items())]

    @property
    def end(self) -> dict[TopicPartition, int]:
        """The end offset of each partition in the batch."""
        return {where: end for where, (_, end) in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        topics = _by_topic(self.ranges)
        if self.initial_partitions is not None:
            planned = {} if self.planned_ms is None else {_PLANNED_KEY: self.planned_ms}
            restarts = {_RESTARTS_KEY: _by_topic(self.restarts)} if self.restarts else {}
            topics[_RESERVED_KEY] = dict(sorted(self.initial_partitions.items())) | planned | restarts
        return topics

    @classmethod
    def from_json(cls, offsets: Mapping[str, Any] | None) -> BatchOffsets:
        """Reads the output of `to_json`. A checkpoint of another source raises ConfigError."""
        initial_partitions = planned_ms = None
        restarts: dict[TopicPartition, tuple[int, int]] = {}
        try:
            topics = dict(offsets or {})
            if _RESERVED_KEY in topics:
                reserved = dict(topics.pop(_RESERVED_KEY))
                restarts = _by_partition(reserved.pop(_RESTARTS_KEY, {}))
                initial_partitions = {str(name): int(count) for name, count in reserved.items()}
                planned_ms = initial_partitions.pop(_PLANNED_KEY, None)
            ranges = _by_partition(topics)
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds offsets that this source did not write: {str(offsets)[:200]}; a query that was "
                "started with another format needs a checkpoint of its own, and starts at the offsets of its group"
            ) from error
        return cls(ranges, initial_partitions, planned_ms, restarts)


def _by_topic(pairs: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for (topic, partition), (first, second) in sorted(pairs.items()):
        topics.setdefault(topic, {})[str(partition)] = [first, second]
    return topics


def _by_partition(topics: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
    return {
        (topic, int(partition)): (int(first), int(second))
        for topic, of in topics.items()
        for partition, (first, second) in of.items()
    }
