"""How far a query is: the offsets that Spark keeps in its checkpoint.

    {"orders": {"0": [1200, 1300], "3": [77, 77]}, "": {"orders": 12, "": 1794787200000}}

Each partition of the query's share has the offsets from and to which the batch reads it. So a batch can be planned from
this alone, although the share differs from batch to batch. Under the empty name, which no topic can have: how many
partitions each topic had when the query first began, since those that came later are read from their beginning; and,
again under the empty name, when the batch was planned, in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.client.errors import ConfigError

Where = tuple[str, int]
_BEGAN_WITH: Final = ""
_PLANNED: Final = ""
"""Beside the topics that the query began with: an earlier version takes it for one of them, and never asks for it."""


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> Where:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Progress:
    ranges: Mapping[Where, tuple[int, int]] = field(default_factory=dict)
    """From where to where the batch reads each partition; the same twice where there was nothing to read."""
    began_with: Mapping[str, int] | None = None
    """How many partitions each topic had when the query first began; None before that."""
    planned_ms: int | None = None
    """When the batch was planned, by the driver's clock; None where that is not known: before the first one, and in
    checkpoints of earlier versions."""

    @property
    def reached(self) -> dict[Where, int]:
        """Up to where each partition is processed once the batch is."""
        return {where: end for where, (_, end) in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for (topic, partition), (start, end) in sorted(self.ranges.items()):
            topics.setdefault(topic, {})[str(partition)] = [start, end]
        if self.began_with is not None:
            planned = {} if self.planned_ms is None else {_PLANNED: self.planned_ms}
            topics[_BEGAN_WITH] = dict(sorted(self.began_with.items())) | planned
        return topics

    @classmethod
    def from_json(cls, said: Mapping[str, Any] | None) -> Progress:
        """What `to_json` wrote. A checkpoint of another source raises ConfigError."""
        ranges: dict[Where, tuple[int, int]] = {}
        began_with = planned_ms = None
        try:
            for topic, of in (said or {}).items():
                if topic == _BEGAN_WITH:
                    began_with = {str(name): int(count) for name, count in of.items()}
                    planned_ms = began_with.pop(_PLANNED, None)
                    continue
                for partition, (start, end) in of.items():
                    ranges[topic, int(partition)] = int(start), int(end)
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds offsets that this source did not write: {str(said)[:200]}; a query that was "
                "begun with another format needs a checkpoint of its own, and begins where its group is"
            ) from error
        return cls(ranges, began_with, planned_ms)
